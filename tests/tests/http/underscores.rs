//! Field names with `_`: legal, but CGI-like applications confuse them with others.

use skep_tests::origin::{Asked, FRESH, Origin};
use skep_tests::{FreePort, PATIENCE, RawClient, Site, Skep, poll_until};

const FIELDS: [(&str, &str); 5] = [
    ("User_Id", "7"),
    ("X_Forwarded_For", "6.6.6.6"),
    ("Content_Length", "5"),
    ("X-Own", "1"),
    ("_", "b"),
];

/// A dispatcher in front of a fake node.
struct Gate {
    skep: Skep,
    metrics: FreePort,
    node: Origin,
    _folder: Site,
}

impl Gate {
    fn new(settings: &str) -> Self {
        let node = Origin::of("ok", "\"v\"", FRESH);
        let [gate, metrics] = [(); 2].map(|()| FreePort::claim());
        let folder = Site::new();
        let (root, address) = (folder.root().display(), gate.address());
        let text = format!(
            "state_dir = \"{root}/state\"\n[admin]\nlisten = \"off\"\n\
             [metrics]\nlisten = \"{}\"\n[[dispatcher]]\nname = \"gate\"\n\
             [[service]]\nname = \"web\"\nlisten = \"{address}\"\n\
             [[node]]\nname = \"n1\"\naddress = \"{}\"\n[[site]]\nroot = \"{root}\"\n{settings}",
            metrics.address(),
            node.url().trim_start_matches("http://"),
        );
        folder.write("skep.toml", text);
        let skep = Skep::run(&folder.path("skep.toml"), &["--as", "gate"], address);
        let is_up = || skep.connect().get("/up").status == 200;
        poll_until(PATIENCE, "the dispatcher knows that the node is up", is_up);
        Self { skep, metrics, node, _folder: folder }
    }

    /// Returns the request that the node received.
    fn passed(&self) -> Asked {
        self.skep.connect().request("GET", "/f", &FIELDS).assert_status(200);
        self.node.asked().into_iter().rfind(|asked| asked.target == "/f").expect("it was asked")
    }

    fn dropped(&self) -> String {
        let text = RawClient::connect(self.metrics.address()).get("/metrics").text();
        let line = text.lines().find(|line| line.starts_with("skep_fields_dropped_total"));
        line.and_then(|line| line.split(' ').next_back()).unwrap_or_default().to_owned()
    }
}

#[test]
fn files_and_origins_do_not_care() {
    let site = Site::new().with("f", "file");
    let origin = Origin::of("origin", "\"v\"", FRESH);
    for (skep, text) in [
        (Skep::node(site.root(), ""), "file"),
        (Skep::serve(site.root(), &[]), "file"),
        (origin.node(""), "origin"),
    ] {
        let mut client = skep.connect();
        for _ in 0..2 {
            assert_eq!(client.request("GET", "/f", &FIELDS).assert_status(200).text(), text);
        }
    }
    let asked = &origin.asked()[0];
    assert!(
        FIELDS.iter().all(|(name, _)| asked.field(&name.to_lowercase()).is_none()),
        "{asked:?}"
    );
}

#[test]
fn nodes_do_not_get_them_unless_they_may_pass() {
    let gate = Gate::new("");
    let asked = gate.passed();
    assert_eq!((asked.field("user_id"), asked.field("_")), (None, None), "{asked:?}");
    assert_eq!((asked.field("x_forwarded_for"), asked.field("content_length")), (None, None));
    assert_eq!(
        (asked.field("x-own"), asked.field("x-forwarded-for")),
        (Some("1"), Some("127.0.0.1"))
    );
    // Counters may be updated after the reply.
    poll_until(PATIENCE, "the dropped ones are counted", || gate.dropped() == "4");
}

#[test]
fn passed_ones_imitate_nothing_that_is_written_here() {
    let gate = Gate::new("[limits]\nunderscore_fields = \"pass\"\n");
    let asked = gate.passed();
    assert_eq!((asked.field("user_id"), asked.field("_")), (Some("7"), Some("b")), "{asked:?}");
    assert_eq!((asked.field("x_forwarded_for"), asked.field("content_length")), (None, None));
    assert_eq!(gate.dropped(), "0");
}

#[test]
fn they_may_be_refused() {
    let gate = Gate::new("[limits]\nunderscore_fields = \"refuse\"\n");
    let mut client = gate.skep.connect();
    client.request("GET", "/f", &FIELDS[..1]).assert_status(400);
    client.assert_closed();
    gate.skep.connect().request("GET", "/f", &FIELDS[3..4]).assert_status(200);
}
