vcl 4.1;

# Purging by tag without modules. A ban is tested against each older object: by the ban lurker in the
# background, and when the object is requested. It uses only obj.*: otherwise the lurker could not
# test it, and bans would pile up.

import std;

sub portolan_purge_tags {
    # Whole tags between spaces or ends; they are hexadecimal digits, so no pattern characters.
    if (!std.ban("obj.http.xkey ~ (^|\s)(" + regsuball(req.http.Surrogate-Key, " ", "|") + ")(\s|$)")) {
        return (synth(400, "Ban Refused"));
    }
    return (synth(200, "Banned"));
}
