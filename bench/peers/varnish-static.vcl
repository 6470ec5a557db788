# Varnish serving from memory: the origin is asked once for each file.
vcl 4.1;
backend origin { .host = "127.0.0.1"; .port = "@BACKEND1@"; }
sub vcl_backend_response { set beresp.ttl = 1d; set beresp.do_gzip = false; }
