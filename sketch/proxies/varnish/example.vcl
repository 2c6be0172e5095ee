vcl 4.1;

# Start varnishd with PORTOLAN_PURGE_TOKEN in its environment, and with
#   -p http_gzip_support=off    otherwise Varnish requests gzip for all clients, unpacks it for
#                               clients that did not request it, and weakens their ETags
#   -p vcl_path=...             the directory that `sketch.proxies.shipped("varnish")` names
#   -t 0 -p default_grace=0 -p default_keep=0     only responses that allow it are stored

backend origin {
    .host = "127.0.0.1";
    .port = "8080";
    # Longer than the service's maximum, or writes that take effect would be reported as lost.
    .first_byte_timeout = 60s;
}

acl portolan_purgers {
    "127.0.0.1";
    "::1";
}

# Without the module: include "portolan-ban.vcl";
include "portolan-xkey.vcl";
include "portolan.vcl";
