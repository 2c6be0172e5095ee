vcl 4.1;

# Purging by tag without modules. A ban is compared with each object that is older than it: by the
# ban lurker in the background, and when the object is requested. It names obj.* only, or the lurker
# could not do so, and bans would pile up.

import std;

sub portolan_purge_tags {
    # Whole tags between spaces or ends; they are hexadecimal digits, so no part of a pattern.
    if (!std.ban("obj.http.xkey ~ (^|\s)(" + regsuball(req.http.Surrogate-Key, " ", "|") + ")(\s|$)")) {
        return (synth(400, "Ban Refused"));
    }
    return (synth(200, "Banned"));
}
