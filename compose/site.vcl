vcl 4.1;

import directors;

# Two replicas, round robin.
backend api1 {
    .host = "api-1";
    .port = "8080";
    .first_byte_timeout = 60s;
}

backend api2 {
    .host = "api-2";
    .port = "8080";
    .first_byte_timeout = 60s;
}

sub vcl_init {
    new replicas = directors.round_robin();
    replicas.add_backend(api1);
    replicas.add_backend(api2);
}

acl portolan_purgers {
    "10.0.0.0"/8;
    "172.16.0.0"/12;
    "192.168.0.0"/16;
}

sub vcl_recv {
    set req.backend_hint = replicas.backend();
}

include "portolan-ban.vcl";
include "portolan.vcl";
