//! Content-Type set by the operator in `headers`: exactly one, whatever the reply consists of.

use skep_tests::app::{App, response};
use skep_tests::origin::Origin;
use skep_tests::{Response, Site, Skep};

use super::pools::pool_lines;

const OWN: &str = "headers = { \"content-type\" = \"text/x-own\" }\n";

/// Two ranges of an object that is long enough that they are not merged.
const RANGES: &str = "bytes=0-1,1500-1501";

fn get(skep: &Skep, path: &str, fields: &[(&str, &str)]) -> Response {
    skep.connect().request("GET", path, fields)
}

/// Returns the only type of a reply.
fn type_of(reply: &Response) -> &str {
    let types: Vec<_> = reply.header_all("content-type").collect();
    let [one] = types[..] else { panic!("{}", reply.head_text()) };
    one
}

/// Asserts that the reply to `path` has the operator's type: as a whole, and each of its parts.
fn assert_own(skep: &Skep, path: &str) {
    let whole = get(skep, path, &[]);
    assert_eq!((whole.status, type_of(&whole)), (200, "text/x-own"), "{path}");
    // From memory, and from elsewhere.
    for _ in 0..2 {
        let part = get(skep, path, &[("Range", "bytes=0-1")]);
        assert_eq!((part.status, type_of(&part)), (206, "text/x-own"), "{path}");
        let parts = get(skep, path, &[("Range", RANGES)]);
        assert_eq!(parts.status, 206, "{}", parts.head_text());
        assert!(type_of(&parts).starts_with("multipart/byteranges; boundary="), "{path}");
        let heads = parts.text().matches("\r\nContent-Type: text/x-own\r\n").count();
        assert_eq!((heads, parts.text().matches("Content-Type").count()), (2, 2), "{path}");
    }
}

#[test]
fn files_have_the_type_of_headers_and_what_the_node_says_itself_has_its_own() {
    let site = Site::new().with("a.txt", "0123456789".repeat(200)).with("d/b.txt", "b");
    let root = site.root().display();
    let skep = Skep::node_of(&format!(
        "root = \"{root}\"\nlisting = true\n{OWN}[[site.route]]\npath = \"/fixed\"\n\
         [site.route.reply]\nstatus = 200\nbody = \"fixed\"\n\
         [[site.route]]\npath = \"/away\"\n[site.route.reply]\nstatus = 302\nlocation = \"/a.txt\"\n\
         [[site.route]]\npath = \"/other/*\"\nroot = \"{root}\"\n\
         headers = {{ \"Content-Type\" = \"text/y\" }}\n"
    ));
    assert_own(&skep, "/a.txt");
    assert_eq!(type_of(&get(&skep, "/fixed", &[])), "text/x-own");
    assert_eq!(type_of(&get(&skep, "/d/", &[])), "text/html; charset=utf-8");
    for (path, fields, status) in [
        ("/gone", ("X-Any", "1"), 404),
        ("/a.txt", ("Range", "bytes=5000-"), 416),
        ("/a.txt", ("If-Match", "\"x\""), 412),
    ] {
        let reply = get(&skep, path, &[fields]);
        assert_eq!((reply.status, type_of(&reply)), (status, "text/plain; charset=utf-8"));
    }
    assert_eq!(get(&skep, "/away", &[]).header_all("content-type").count(), 0);
}

#[test]
fn responses_of_origins_and_of_pools_get_it_in_place_of_theirs() {
    let body = "0123456789".repeat(200);
    let fields = "Content-Type: text/theirs\r\nCache-Control: max-age=60\r\n";
    let origin = Origin::of(body.clone(), "\"v1\"", fields);
    assert_own(&origin.node(OWN), "/a");

    let app = App::answering(move |_| response(200, fields, &body));
    let pool = pool_lines("", &[(app.address(), "")]);
    let cache = "[site.cache]\nenabled = true\n";
    assert_own(&Skep::node_of(&format!("pool = \"app\"\n{OWN}{cache}{pool}")), "/a");
}

#[test]
fn named_files_get_it_in_place_of_what_the_application_says() {
    let files = Site::new().with("a.txt", "0123456789".repeat(200));
    let fields = "Content-Type: text/theirs\r\nX-Accel-Redirect: /a.txt\r\n";
    let app = App::answering(move |_| response(200, fields, ""));
    let pool = pool_lines("", &[(app.address(), "")]);
    let skep = Skep::node_of(&format!(
        "pool = \"app\"\n{OWN}[site.forward]\nsendfile_root = \"{}\"\n{pool}",
        files.root().display()
    ));
    assert_own(&skep, "/x");
}
