//! Routes of one site in a cluster: the content of each kind of backend is shared in its own way.

use std::fs;

use skep_tests::app::{App, response};
use skep_tests::cache::{CacheCluster, OWN_NAME, SEGMENT};
use skep_tests::content::{version, version_of};
use skep_tests::origin::{Answer, FRESH, Origin};
use skep_tests::{PATIENCE, Site, poll_until};

const NODES: [&str; 3] = ["node-1", "node-2", "node-3"];

#[test]
fn a_partition_a_shared_folder_and_an_origin_are_one_site() {
    let len = SEGMENT + 4711;
    let site = Site::new()
        .with("node-1/one", version(1, len))
        .with("node-2/sub/two", version(2, 70_000))
        .with("all/pics/p", version(3, len))
        .with("other/node-3/sub/x/three", version(4, 5_000));
    for node in NODES {
        fs::create_dir_all(site.path(node)).unwrap();
        fs::create_dir_all(site.path(&format!("other/{node}"))).unwrap();
    }
    let origin = Origin::start(|_| Answer::new(200, FRESH, version(5, 9_000)));
    let root = |folder: &str| site.path(folder).display().to_string();
    let lines = format!(
        "root = \"{}\"\ncontent = \"partition\"\n\
         [[site.route]]\npath = \"/pics/*\"\nroot = \"{}\"\ncontent = \"shared\"\n\
         [[site.route]]\npath = \"/api/*\"\n{}\n\
         [[site.route]]\npath = \"/sub/x/*\"\nroot = \"{}\"\ncontent = \"partition\"\n",
        root(OWN_NAME),
        root("all"),
        origin.line(),
        root(&format!("other/{OWN_NAME}")),
    );
    let cluster = CacheCluster::start_of(1, 3, site, &lines, "");
    let files = [
        ("/one", 1, len),
        ("/sub/two", 2, 70_000),
        ("/pics/p", 3, len),
        ("/sub/x/three", 4, 5_000),
    ];
    for node in NODES {
        for (path, number, len) in files {
            let of = |node| cluster.get(node, path);
            poll_until(PATIENCE, &format!("{path} at {node}"), || of(node).status == 200);
            let body = of(node).body;
            assert_eq!((version_of(&body), body.len()), (Ok(number), len), "{path} at {node}");
        }
        let body = cluster.get(node, "/api/x?q").body;
        assert_eq!((version_of(&body), body.len()), (Ok(5), 9_000), "{node}");
    }
    cluster.assert_asked(origin.asked().len() as u64, 1);

    let purged = cluster.purge("dispatcher-1", &["/api/*"]);
    assert_eq!(purged["complete"], true, "{purged}");
    for node in NODES {
        assert_eq!(version_of(&cluster.get(node, "/api/x?q").body), Ok(5), "{node}");
        let kept = cluster.get(node, "/pics/p");
        assert!(kept.header("cache-status").unwrap().contains("hit"), "{}", kept.head_text());
    }
    cluster.assert_asked(origin.asked().len() as u64, 2);
}

/// A file that an application names is read from disk by one node, and from memory by the others.
#[test]
fn nodes_share_the_files_that_applications_name() {
    let len = SEGMENT + 4711;
    let site = Site::new().with("protected/a", version(3, len));
    let app = App::answering(|_| response(200, "X-Accel-Redirect: /own/a\r\n", ""));
    let lines = format!(
        "pool = \"app\"\ncontent = \"shared\"\n[site.forward]\nsendfile_root = \"{}\"\n\
         sendfile_path = \"/own\"\n\
         [[pool]]\nname = \"app\"\n[[pool.server]]\nname = \"s1\"\naddress = \"{}\"\n",
        site.path("protected").display(),
        app.address()
    );
    let cluster = CacheCluster::start_of(1, 3, site, &lines, "");
    cluster.wait_up();
    for node in NODES {
        let reply = cluster.get(node, "/download");
        assert_eq!((version_of(&reply.body), reply.body.len()), (Ok(3), len), "{node}");
        assert_eq!(reply.header("x-accel-redirect"), None);
    }
    let read = |node| cluster.metric(node, "skep_cluster_cache_bytes_total{from=\"origin\"}");
    assert_eq!(NODES.map(read).iter().sum::<u64>(), len as u64);
}
