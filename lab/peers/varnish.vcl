# Varnish whose nodes share their memories: its shard director says whose an
# object is; the owner asks the origin, others ask the owner and keep nothing.
vcl 4.1;
import directors;
backend origin { .host = "@ORIGIN@"; .port = "80"; }
@BACKENDS@
sub vcl_init {
    new nodes = directors.shard();
@ADDS@
    nodes.reconfigure(replicas=67);
}
sub vcl_recv {
    if (req.url == "@PROBE@") { return (synth(200)); }
    unset req.http.x-owner;
    set req.backend_hint = nodes.backend(by=URL, resolve=NOW);
    if (req.backend_hint == @OWN@ || req.http.x-asker) {
        set req.backend_hint = origin;
    } else {
        set req.http.x-asker = "@OWN@";
        return (pass);
    }
}
sub vcl_backend_response { set beresp.do_gzip = false; }
sub vcl_deliver {
    if (resp.http.X-Cache) {
        # The owner's word.
        if (resp.http.X-Cache == "HIT") { set resp.http.X-Cache = "PEER"; }
    } else if (obj.hits > 0) {
        set resp.http.X-Cache = "HIT";
    } else {
        set resp.http.X-Cache = "MISS";
    }
}
