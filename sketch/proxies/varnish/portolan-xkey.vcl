vcl 4.1;

# Purging by tag with the module xkey (Debian: varnish-modules), which maps tags to objects.

import xkey;

sub portolan_purge_tags {
    set req.http.Portolan-Purged = xkey.purge(req.http.Surrogate-Key);
    return (synth(200, "Purged"));
}
