//! Compressed variants in a cluster: one compression for all nodes with the same bytes.

use skep_tests::app::{App, response};
use skep_tests::cache::{CacheCluster, OWN_NAME};
use skep_tests::{PATIENCE, RawClient, Response, Site, poll_until};

const NODES: usize = 3;
const COMPRESS: &str = "[site.compress]\nenabled = true\n";
const MADE: &str = "skep_compressions_total{coding=\"br\"}";
const USELESS: &str = "skep_compressions_skipped_total{cause=\"useless\"}";

fn page(lines: usize) -> String {
    (0..lines).map(|line| format!("<p>line {line} of {}</p>\n", line * line)).collect()
}

fn node(number: usize) -> String {
    format!("node-{number}")
}

fn cluster(site: Site, lines: &str) -> CacheCluster {
    CacheCluster::start_of(1, NODES, site, lines, "")
}

/// Starts a cluster with a folder that all nodes share.
fn shared(site: Site) -> CacheCluster {
    let root = site.root().display().to_string();
    cluster(site, &format!("root = \"{root}\"\ncontent = \"shared\"\n{COMPRESS}"))
}

fn asking(cluster: &CacheCluster, number: usize, target: &str) -> RawClient {
    let mut client = RawClient::connect(cluster.outer(&node(number)));
    client.send_request("GET", target, &[("Accept-Encoding", "br")]);
    client
}

/// Returns an encoded reply: a client that would have to wait for the variant for more than a second gets
/// plain bytes, and the request is repeated.
fn encoded(mut reply: Response, client: &mut RawClient, target: &str) -> Response {
    poll_until(PATIENCE, "the variant is made", || {
        if reply.header("content-encoding").is_none() {
            reply = client.request("GET", target, &[("Accept-Encoding", "br")]);
        }
        reply.header("content-encoding").is_some()
    });
    reply
}

/// Sends requests by this number of clients of each node at a time, and returns the reply, which must be the
/// same for all.
#[track_caller]
fn ask_all(cluster: &CacheCluster, clients: usize, target: &str) -> Response {
    let numbers = (0..clients).flat_map(|_| 1..=NODES);
    let mut asking: Vec<_> = numbers.map(|number| asking(cluster, number, target)).collect();
    let replies: Vec<_> =
        asking.iter_mut().map(|client| encoded(client.response(), client, target)).collect();
    let first = replies[0].clone();
    for reply in &replies {
        assert_eq!(reply.header("content-encoding"), Some("br"), "{}", reply.head_text());
        assert_eq!(reply.header("etag"), first.header("etag"));
        assert!(reply.body == first.body);
    }
    first
}

#[test]
fn a_file_of_all_nodes_is_compressed_once() {
    let cluster = shared(Site::new().with("page.html", page(20_000)));
    let first = ask_all(&cluster, 8, "/page.html");
    assert!(first.body.len() < page(20_000).len() / 4);
    cluster.assert_asked(cluster.sum(MADE), 1);
    // All nodes have it in memory, whichever one compressed it.
    if !cluster.has_doubts(0) {
        ask_all(&cluster, 1, "/page.html");
        assert_eq!(cluster.sum(MADE), 1);
    }
    // A purge removes all variants.
    cluster.purge("dispatcher-1", &["http://test/page.html"]);
    assert!(ask_all(&cluster, 2, "/page.html").body == first.body);
    cluster.assert_asked(cluster.sum(MADE), 2);
}

#[test]
fn a_stored_response_is_computed_once_and_compressed_once() {
    let app = App::answering(|_| {
        let fields = "Cache-Control: max-age=60\r\nContent-Type: text/html\r\n";
        response(200, fields, page(5000))
    });
    let lines = format!(
        "pool = \"app\"\n[site.cache]\nenabled = true\n{COMPRESS}[[pool]]\nname = \"app\"\n\
         [[pool.server]]\nname = \"s1\"\naddress = \"{}\"\n",
        app.address()
    );
    let cluster = cluster(Site::new(), &lines);
    cluster.wait_up();
    ask_all(&cluster, 8, "/page");
    cluster.assert_asked(cluster.sum(MADE), 1);
}

/// Each node has a part of the file.
#[test]
fn a_file_of_one_disk_is_compressed_once_for_all() {
    let names = (1..=NODES).map(|number| format!("node-{number}/page-{number}.html"));
    let site = names.fold(Site::new(), |site, name| site.with(&name, page(2000)));
    let root = site.path(OWN_NAME).display().to_string();
    let cluster = cluster(site, &format!("root = \"{root}\"\ncontent = \"partition\"\n{COMPRESS}"));
    for number in 1..=NODES {
        let path = format!("/page-{number}.html");
        let is_known = || (1..=NODES).all(|at| cluster.get(&node(at), &path).status == 200);
        poll_until(PATIENCE, "the file is announced", is_known);
        ask_all(&cluster, 2, &path);
    }
    cluster.assert_asked(cluster.sum(MADE), NODES as u64);
}

#[test]
fn what_one_node_found_useless_the_others_do_not_try() {
    // Incompressible bytes.
    let mut state = 1_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    })
    .take(200_000)
    .collect();
    let cluster = shared(Site::new().with("noise.html", &noise));
    for number in (1..=NODES).chain(1..=NODES) {
        let reply = asking(&cluster, number, "/noise.html").response();
        assert_eq!(reply.header("content-encoding"), None);
        assert!(reply.body == noise);
    }
    cluster.assert_asked(cluster.sum(USELESS), 1);
}

/// Two nodes may have different files with the same name, time and size.
#[test]
fn files_of_one_node_are_compressed_by_it_alone() {
    let site = Site::new().with("page.html", page(2000));
    let root = site.root().display().to_string();
    let cluster = cluster(
        site,
        &format!(
            "root = \"{root}\"\n{COMPRESS}[[site.route]]\npath = \"/shared/*\"\nroot = \"{root}\"\n\
         content = \"shared\"\n"
        ),
    );
    ask_all(&cluster, 1, "/page.html");
    assert_eq!(cluster.sum(MADE), NODES as u64);
    assert_eq!(cluster.sum("skep_cluster_cache_total{outcome=\"peer_hit\"}"), 0);
}

#[test]
fn the_variant_outlives_the_node_that_made_it() {
    let mut cluster = shared(Site::new().with("page.html", page(2000)));
    let first = asking(&cluster, 1, "/page.html").response();
    assert_eq!(asking(&cluster, 2, "/page.html").response().body, first.body);
    cluster.kill("node-1");
    for number in [2, 3] {
        let reply = asking(&cluster, number, "/page.html").response();
        assert_eq!(reply.header("content-encoding"), Some("br"));
        assert!(reply.body == first.body);
    }
}
