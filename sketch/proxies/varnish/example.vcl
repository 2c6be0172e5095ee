vcl 4.1;

# Start varnishd with PORTOLAN_PURGE_TOKEN in its environment, and with
#   -p http_gzip_support=off    Varnish would ask for gzip in the name of all clients, unpack it for
#                               those who did not, and weaken their ETags
#   -p vcl_path=...             the directory that `sketch.proxies.shipped("varnish")` names
#   -t 0 -p default_grace=0 -p default_keep=0     nothing is kept that does not say so

backend origin {
    .host = "127.0.0.1";
    .port = "8080";
    # Longer than the service takes at most, or writes would be reported lost that are not.
    .first_byte_timeout = 60s;
}

acl portolan_purgers {
    "127.0.0.1";
    "::1";
}

# Without the module: include "portolan-ban.vcl";
include "portolan-xkey.vcl";
include "portolan.vcl";
