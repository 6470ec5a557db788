//! Requests at a server of a pool, counted across the cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use skep_tests::app::{App, response};
use skep_tests::cache::CacheCluster;
use skep_tests::{PATIENCE, RawClient, Site, poll_until};

const NODES: usize = 4;
const SLOTS: usize = 5;

/// Number of clients of each node: more than there are slots.
const CLIENTS: usize = 3;

/// Number of requests that an application is processing, and the maximum so far.
#[derive(Default)]
struct InWork {
    now: AtomicUsize,
    most: AtomicUsize,
    done: AtomicUsize,
}

/// An application with some processing time.
fn app() -> (App, Arc<InWork>) {
    let in_work = Arc::<InWork>::default();
    let seen = Arc::clone(&in_work);
    let app = App::answering(move |_| {
        let now = seen.now.fetch_add(1, SeqCst) + 1;
        seen.most.fetch_max(now, SeqCst);
        // Processing time; the test does not wait for it.
        thread::sleep(Duration::from_millis(20));
        seen.now.fetch_sub(1, SeqCst);
        seen.done.fetch_add(1, SeqCst);
        response(200, "", "done")
    });
    (app, in_work)
}

fn cluster(app: &App, dispatchers: usize) -> CacheCluster {
    let lines = format!(
        "pool = \"app\"\n[[pool]]\nname = \"app\"\nqueue_timeout_ms = \"1m\"\n[[pool.server]]\n\
         name = \"s1\"\naddress = \"{}\"\nconnections_max = {SLOTS}\n",
        app.address()
    );
    let cluster = CacheCluster::start_of(dispatchers, NODES, Site::new(), &lines, "");
    cluster.wait_up();
    cluster
}

fn node(number: usize) -> String {
    format!("node-{number}")
}

/// Runs `job` while clients of these nodes send requests as fast as they can; each reply must be complete.
fn under_load<R>(
    cluster: &CacheCluster,
    nodes: impl Iterator<Item = usize>,
    job: impl FnOnce() -> R,
) -> R {
    let addresses: Vec<_> = nodes.map(|number| cluster.outer(&node(number))).collect();
    under_load_at(&addresses, job)
}

fn under_load_at<R>(addresses: &[std::net::SocketAddr], job: impl FnOnce() -> R) -> R {
    let is_over = AtomicBool::new(false);
    let ask = |address| {
        let mut client = RawClient::connect(address);
        while !is_over.load(SeqCst) {
            let reply = client.get("/");
            assert_eq!((reply.status, reply.text().as_str()), (200, "done"));
        }
    };
    thread::scope(|scope| {
        let clients = addresses.iter().flat_map(|address| [address; CLIENTS]);
        let asking: Vec<_> = clients.map(|&address| scope.spawn(move || ask(address))).collect();
        // Even if the job fails.
        let over = Ends(&is_over);
        let result = job();
        drop(over);
        asking.into_iter().for_each(|client| client.join().unwrap());
        result
    })
}

/// Sets the flag when dropped.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

fn slots(cluster: &CacheCluster, number: usize) -> u64 {
    slots_of(cluster, number, ["app", "s1"])
}

fn slots_of(cluster: &CacheCluster, number: usize, [pool, server]: [&str; 2]) -> u64 {
    let metric = format!("skep_pool_server_slots{{pool=\"{pool}\",server=\"{server}\"}}");
    cluster.metric(&node(number), &metric)
}

fn all_slots(cluster: &CacheCluster) -> Vec<u64> {
    (1..=NODES).map(|number| slots(cluster, number)).collect()
}

#[test]
fn all_nodes_together_send_a_server_as_many_requests_as_it_takes() {
    let (app, in_work) = app();
    let cluster = cluster(&app, 1);
    let shared = || all_slots(&cluster).iter().sum::<u64>() == SLOTS as u64;
    poll_until(PATIENCE, "all slots are granted", shared);
    under_load(&cluster, 1..=NODES, || {
        poll_until(PATIENCE, "all slots are used", || in_work.most.load(SeqCst) == SLOTS);
        // One node may use slots that are idle elsewhere.
    });
    under_load(&cluster, 2..=2, || {
        in_work.most.store(0, SeqCst);
        poll_until(PATIENCE, "one node has what it can use", || {
            slots(&cluster, 2) >= CLIENTS as u64
        });
        poll_until(PATIENCE, "and uses it", || in_work.most.load(SeqCst) == CLIENTS);
    });
    assert!(in_work.most.load(SeqCst) <= SLOTS);
}

#[test]
fn the_bound_holds_while_coordinators_and_nodes_die() {
    let (app, in_work) = app();
    let mut cluster = cluster(&app, 2);
    let address = |number: usize| cluster.outer(&node(number));
    let (first, others) = ([address(1); 2], [address(2), address(3)]);
    let others_have = |cluster: &CacheCluster| (1..NODES).map(|it| slots(cluster, it)).sum::<u64>();
    let has_all = |cluster: &CacheCluster| others_have(cluster) == SLOTS as u64;
    under_load_at(&first, || {
        // More than its share.
        poll_until(PATIENCE, "one node has all", || slots(&cluster, 1) == SLOTS as u64);
        cluster.kill("dispatcher-1");
        under_load_at(&others, || {
            poll_until(PATIENCE, "the other coordinator grants", || slots(&cluster, 2) > 0);
            poll_until(PATIENCE, "all slots are granted", || {
                all_slots(&cluster).iter().sum::<u64>() == SLOTS as u64
            });
            cluster.kill(&node(NODES));
            poll_until(PATIENCE, "the slots of the dead go to the others", || has_all(&cluster));
        });
    });
    assert!(in_work.most.load(SeqCst) <= SLOTS, "{} at once", in_work.most.load(SeqCst));
    cluster.kill("dispatcher-2");
    let alone = || (1..NODES).all(|number| slots(&cluster, number) == 1);
    poll_until(PATIENCE, "each has its share", alone);
    cluster.run("dispatcher-2");
    poll_until(PATIENCE, "a new coordinator grants", || has_all(&cluster));
}

#[test]
fn a_server_that_is_added_at_run_time_is_counted_as_one_of_the_file() {
    let ((app, _), (second, in_work)) = (self::app(), self::app());
    let cluster = cluster(&app, 1);
    let (address, slots_max) = (second.address().to_string(), SLOTS.to_string());
    // The order applies to all nodes, whichever receives it.
    let arguments = ["pool", "add", "app", "x1", &address, "--connections-max", &slots_max];
    let added = cluster.skep(&node(3), &arguments);
    assert_eq!(added.code, Some(0), "{}", added.stderr);
    let slots = |number: usize| {
        cluster.metric(&node(number), "skep_pool_server_slots{pool=\"app\",server=\"x1\"}")
    };
    let all = || (1..=NODES).map(slots).sum::<u64>();
    poll_until(PATIENCE, "its slots are granted", || all() == SLOTS as u64);
    under_load(&cluster, 1..=NODES, || {
        poll_until(PATIENCE, "all of them are used", || in_work.most.load(SeqCst) == SLOTS);
        // A reload of the same file changes nothing about it.
        let reloaded = cluster.skep(&node(2), &["reload"]);
        assert_eq!(reloaded.code, Some(0), "{}", reloaded.stderr);
        in_work.most.store(0, SeqCst);
        poll_until(PATIENCE, "all are used again", || in_work.most.load(SeqCst) == SLOTS);
        let removed = cluster.skep(&node(1), &["pool", "remove", "app", "x1", "--wait"]);
        assert!(removed.stdout.ends_with("x1: removed\n"), "{removed:?}");
    });
    assert!(in_work.most.load(SeqCst) <= SLOTS, "{} at once", in_work.most.load(SeqCst));
}

#[test]
fn a_server_of_another_name_is_the_same_server() {
    let (app, in_work) = app();
    let cluster = cluster(&app, 1);
    // One request of each client, and more.
    let many = 4 * NODES * CLIENTS;
    let are_served = |since: usize| in_work.done.load(SeqCst) >= since + many;
    let rename = |number: usize, [pool, server]: [&str; 2]| {
        let renamed = |text: String| {
            let text = text.replace("\"app\"", &format!("\"{pool}\""));
            text.replace("\"s1\"", &format!("\"{server}\""))
        };
        cluster.reconfigure(&node(number), renamed);
        let reload = cluster.skep(&node(number), &["reload"]);
        assert_eq!(reload.code, Some(0), "{}", reload.stderr);
        poll_until(PATIENCE, "the renamed server has slots", || {
            slots_of(&cluster, number, [pool, server]) > 0
        });
        // Requests of the other nodes continue.
        let since = in_work.done.load(SeqCst);
        poll_until(PATIENCE, "clients are served", || are_served(since));
    };
    under_load(&cluster, 1..=NODES, || {
        poll_until(PATIENCE, "all slots are used", || in_work.most.load(SeqCst) == SLOTS);
        // The server, then the pool as well, which is a new one then, and back.
        for to in [["app", "s2"], ["shop", "s3"], ["app", "s1"]] {
            (1..=NODES).for_each(|number| rename(number, to));
        }
    });
    assert!(in_work.most.load(SeqCst) <= SLOTS, "{} at once", in_work.most.load(SeqCst));
    let shared = || all_slots(&cluster).iter().sum::<u64>() == SLOTS as u64;
    poll_until(PATIENCE, "all slots are granted", shared);
}
