vcl 4.1;

# Varnish 7 in front of Portolan: the rules. Include this from a file that names the origin, the
# addresses that may purge, and how tags are purged (example.vcl). docs/proxies.md explains each rule;
# the tests in tests/proxies/ run this file.

import std;

sub vcl_recv {
    call vcl_req_host;
    unset req.http.Portolan-Forced;

    if (req.method == "PURGE") {
        call portolan_purge;
    }
    if (req.method !~ "^(GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS)$") {
        # Varnish would pipe unknown methods: later requests on the connection would reach the origin
        # unseen.
        return (synth(405, "Method Not Allowed"));
    }
    if (req.method == "GET" && req.url ~ "^/v1/[a-z][a-z0-9_]*/changes(\?|$)") {
        # Server-sent events: each byte must arrive when it is sent.
        return (pipe);
    }
    if (req.method != "GET" && req.method != "HEAD") {
        return (pass);
    }
    if (req.url !~ "^/v1/" || req.url ~ "^/v1/[^/?]+/sketch(\?|$)") {
        # A cached filter would be older than it claims.
        return (pass);
    }
    if (req.http.Authorization || req.http.If-Match || req.http.If-Unmodified-Since) {
        # Credentials: a response to one client is not for others. If-Match: only the origin knows.
        return (pass);
    }
    # Portolan ignores cookies: responses do not depend on them, and may be shared.
    unset req.http.Cookie;
    # At most two codings, so at most two variants, however clients write Accept-Encoding.
    if (req.http.Accept-Encoding ~ "(?i)(^|[,\s])gzip\s*(;\s*q\s*=\s*(0\.0*[1-9]|1)|,|$)") {
        set req.http.Accept-Encoding = "gzip";
    } else {
        unset req.http.Accept-Encoding;
    }

    if (req.http.Cache-Control ~ "(?i)(^|[,\s])(no-cache|no-store|max-age\s*=\s*0+)\s*(,|$)") {
        # Varnish ignores the Cache-Control of clients, and would let them wait for a fetch that
        # began before the write they know of. Neither return below does that.
        if (req.http.If-None-Match) {
            # A miss would drop If-None-Match: the origin could not answer 304.
            return (pass);
        }
        set req.http.Portolan-Forced = "1";
        set req.hash_always_miss = true;
    }
    return (hash);
}

sub vcl_hash {
    # Only the raw target: ids are compared byte by byte, `fields` must be canonical, and no
    # response depends on the host.
    hash_data(req.url);
    return (lookup);
}

sub vcl_backend_fetch {
    if (bereq.http.Portolan-Forced) {
        # A cache between here and the origin is forced as well.
        unset bereq.http.Portolan-Forced;
        set bereq.http.Cache-Control = "no-cache";
    }
}

sub vcl_backend_response {
    # Never beyond the expiry. Varnish serves within its grace regardless of must-revalidate,
    # and with keep it would complete a 304 with old header fields.
    set beresp.grace = 0s;
    set beresp.keep = 0s;
    if (bereq.uncacheable) {
        return (deliver);
    }
    std.collect(beresp.http.Cache-Control, ", ");
    if ((beresp.status != 200 && beresp.status != 404)
        || beresp.http.Cache-Control !~ "(?i)(^|[,\s])public\s*(,|$)"
        || beresp.http.Cache-Control ~ "(?i)(^|[,\s])(private|no-cache|no-store)"
        || beresp.http.Portolan-Expires !~ "^[0-9]{10,16}$"
        || beresp.http.Set-Cookie
        || beresp.http.Vary ~ "\*") {
        call portolan_keep_not;
    }
    # s-maxage counts from the receipt: behind a cache that sends no Age (nginx) TTLs would add
    # up. The expiry is absolute, in microseconds; the earlier of the two holds.
    if (beresp.ttl > std.time(regsub(beresp.http.Portolan-Expires, "^(\d+)(\d{3})\d{3}$", "\1.\2"), now) - now) {
        set beresp.ttl = std.time(regsub(beresp.http.Portolan-Expires, "^(\d+)(\d{3})\d{3}$", "\1.\2"), now) - now;
    }
    if (beresp.ttl <= 0s) {
        call portolan_keep_not;
    }
    # Still within the TTL: after half of it a request triggers a background fetch, and does not wait.
    # Varnish then revalidates by ETag; a 304 of Portolan has all fields that control storage, or
    # a Cache-Control that forbids it, so none of the old fields stays in force.
    set beresp.grace = beresp.ttl * 0.5;
    set beresp.ttl = beresp.ttl - beresp.grace;
    return (deliver);
}

sub portolan_keep_not {
    # "Hit for miss": requests do not queue up for a response that cannot be shared, and the next
    # response that can be shared is stored.
    set beresp.uncacheable = true;
    set beresp.ttl = 10s;
    return (deliver);
}

sub vcl_deliver {
    # RFC 9211: each cache adds its status.
    if (obj.hits > 0) {
        set resp.http.Portolan-Did = "Varnish; hit";
    } else {
        set resp.http.Portolan-Did = "Varnish; fwd=miss";
    }
    if (resp.http.Cache-Status) {
        set resp.http.Cache-Status = resp.http.Cache-Status + ", " + resp.http.Portolan-Did;
    } else {
        set resp.http.Cache-Status = resp.http.Portolan-Did;
    }
    unset resp.http.Portolan-Did;
}

sub portolan_purge {
    # Both the address and the token are required: behind another proxy on the same machine every
    # request comes from an address that may purge. Without a configured token all are refused.
    if (client.ip !~ portolan_purgers
        || !std.getenv("PORTOLAN_PURGE_TOKEN")
        || std.getenv("PORTOLAN_PURGE_TOKEN") == ""
        || req.http.Authorization != "Bearer " + std.getenv("PORTOLAN_PURGE_TOKEN")) {
        return (synth(403, "Purge Refused"));
    }
    if (!req.http.Surrogate-Key) {
        # By URL, with all its variants.
        return (purge);
    }
    # Tags are 32 hexadecimal digits each. Nothing else reaches a ban or the index.
    if (req.http.Surrogate-Key !~ "^[0-9a-f]{32}(?: [0-9a-f]{32})*+$") {
        return (synth(400, "Not Tags"));
    }
    call portolan_purge_tags;
}

sub vcl_synth {
    set resp.http.Cache-Control = "no-store";
    set resp.http.Content-Type = "application/problem+json";
    set resp.body = {"{"type":"about:blank","title":""} + resp.reason + {"","status":"} + resp.status + "}";
    return (deliver);
}

sub vcl_backend_error {
    # If the origin does not answer, no stale response may replace its answer.
    set beresp.ttl = 0s;
    set beresp.grace = 0s;
    set beresp.keep = 0s;
    set beresp.http.Cache-Control = "no-store";
    set beresp.http.Retry-After = "1";
    set beresp.http.Content-Type = "application/problem+json";
    set beresp.body = {"{"type":"about:blank","title":"The origin did not answer","status":"} + beresp.status + "}";
    return (deliver);
}
