//! Settings whose value is one of a few words, and those words.

use std::path::PathBuf;

use serde::Serialize;

/// The policies this version knows, as [`crate::ServiceConfig::policy`] names them.
pub const POLICY_NAMES: &[&str] = &[
    "random",
    "round-robin",
    "weighted-round-robin",
    "least-connections",
    "weighted-least-connections",
    "least-outstanding",
    "least-bytes",
    "power-of-two",
    "maglev-address",
    "maglev-connection",
    "idlest-half",
    "maglev-url",
    "bounded-maglev-url",
    "lard",
    "lard-r",
    "equiload",
    "adaptload",
    "transfer-time",
    "peak-ewma",
    "prequal",
];

/// The first of them look at nothing but addresses and loads, which is all
/// that `dispatch = "direct"` sees.
pub const DIRECT_POLICY_NAMES: &[&str] = POLICY_NAMES.split_at(10).0;

/// An enum whose variants are words in the config file.
macro_rules! words {
    (
        $(#[doc = $doc:literal])+
        $name:ident { $($(#[doc = $vdoc:literal])+ $variant:ident = $word:literal,)+ }
    ) => {
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
        pub enum $name {
            $($(#[doc = $vdoc])+ #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            /// The words, in the order of the variants.
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            /// The variant that `word` names.
            pub fn from_word(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$variant),)+
                    _ => None,
                }
            }

            /// The word of this variant.
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.word())
            }
        }
    };
}

words! {
    /// How a request gets from the service's address to a node.
    DispatchMode {
        /// The dispatcher reads the request and passes both ways on.
        Proxy = "proxy",
        /// The dispatcher answers with a redirect to the node.
        Redirect = "redirect",
        /// The dispatcher steers the client's packets to a node, which answers
        /// the client itself.
        Direct = "direct",
        /// As `Direct`, and the node that accepted a connection moves it to the
        /// node that should answer its request.
        Handoff = "handoff",
    }
}

impl DispatchMode {
    /// Whether clients' packets are steered to nodes, which answer by themselves.
    pub fn is_steered(self) -> bool {
        matches!(self, Self::Direct | Self::Handoff)
    }
}

words! {
    /// Who decides which node answers a request under `dispatch = "handoff"`.
    HandoffDecision {
        /// The node that read the request, by its view of the others.
        Local = "local",
        /// The active dispatcher, which has all loads.
        Coordinator = "coordinator",
    }
}

words! {
    /// What carries the messages of a handoff between nodes.
    HandoffTransport {
        /// IP itself, by an experimental protocol number.
        Ip = "ip",
        /// UDP.
        Udp = "udp",
    }
}

words! {
    /// What the servers of a pool speak.
    PoolProtocol {
        /// HTTP/1.1.
        Http = "http",
        /// FastCGI, as php-fpm.
        Fcgi = "fastcgi",
        /// AJP13, as Tomcat.
        Ajp = "ajp",
    }
}

words! {
    /// Which script of a FastCGI application runs.
    ScriptWord {
        /// The one that the path names.
        Extension = "extension",
        /// The one that the path names, or a front controller.
        FrontController = "front-controller",
        /// Always the same.
        Always = "always",
        /// None: the application has all paths below one.
        Below = "below",
    }
}

words! {
    /// How a request identifies the server of its session.
    StickyBy {
        /// It does not: the policy chooses for each request.
        Off = "off",
        /// By a cookie that nodes insert.
        Cookie = "cookie",
        /// By the name that the application puts behind the id of a session.
        Route = "route",
        /// By the hash of a cookie's value.
        CookieHash = "cookie-hash",
        /// By the hash of a field's value.
        FieldHash = "field-hash",
    }
}

words! {
    /// What the servers of a pool are, which are asked for their status.
    StatusAgent {
        /// They are not asked.
        Off = "off",
        /// Tomcat with its manager.
        Tomcat = "tomcat",
        /// The FastCGI process manager of PHP.
        PhpFpm = "php-fpm",
        /// Whatever answers with JSON.
        Json = "json",
    }
}

words! {
    /// Whose requests at a server `connections_max` bounds.
    ConnectionsScope {
        /// Those of a node, if the server is on the node's own machine, and no other node is; else those of
        /// all nodes.
        Auto = "auto",
        /// Those of all nodes.
        Cluster = "cluster",
        /// Those of each node.
        Node = "node",
    }
}

words! {
    /// The attribute SameSite of a cookie.
    SameSite {
        /// With links from other sites, but no other requests of theirs.
        Lax = "lax",
        /// None.
        Strict = "strict",
        /// All; only with `secure`.
        None = "none",
    }
}

words! {
    /// Statuses of responses that are stored.
    StorableStatuses {
        /// Successes, redirections, and 404, 405, 410, 451.
        Usual = "usual",
        /// Any.
        Any = "any",
    }
}

words! {
    /// When responses with Set-Cookie are stored.
    ResponseCookies {
        /// Not at all.
        Never = "never",
        /// If they are for shared caches in so many words.
        Shared = "shared",
        /// As if there were no such field.
        Always = "always",
    }
}

words! {
    /// What becomes of requests with cookies.
    RequestCookies {
        /// They see and make only responses with a lifetime of the application's own.
        Explicit = "explicit",
        /// As if there were no such field.
        Ignore = "ignore",
    }
}

words! {
    /// Directives of requests that a cache obeys.
    ObeyedRequests {
        /// Those that cost the application nothing.
        Safe = "safe",
        /// All.
        All = "all",
    }
}

words! {
    /// Which symbolic links under a site's root are followed.
    Symlinks {
        /// Those whose target lies under the root.
        Beneath = "beneath",
        /// None.
        Refuse = "refuse",
        /// All, wherever they lead.
        Follow = "follow",
    }
}

words! {
    /// What becomes of fields with `_` in their names.
    UnderscoreFields {
        /// They are left out.
        Drop = "drop",
        /// They are fields like any other.
        Pass = "pass",
        /// The request is refused.
        Refuse = "refuse",
    }
}

words! {
    /// Where a site's folder is.
    ContentPlacement {
        /// On each node, whole.
        Local = "local",
        /// In one place that all nodes see.
        Shared = "shared",
        /// In parts, each on some node.
        Partition = "partition",
    }
}

words! {
    /// Where dispatchers keep what must outlive them.
    StoreKind {
        /// In a file of each dispatcher.
        Embedded = "embedded",
        /// In an etcd cluster, which also holds the leader's lease.
        Etcd = "etcd",
    }
}

words! {
    /// Where in the kernel packets are steered.
    Attach {
        /// The first of the others that the device can do.
        Auto = "auto",
        /// In the device's driver.
        XdpNative = "xdp-native",
        /// Right behind the driver, for drivers without XDP.
        XdpGeneric = "xdp-generic",
        /// At the ingress hook of traffic control.
        Tc = "tc",
    }
}

words! {
    /// Form of an access log line.
    LogFormat {
        /// Combined Log Format, with Skep's times at the end.
        Combined = "combined",
        /// One JSON object a line.
        Json = "json",
    }
}

words! {
    /// The least severe message that is logged.
    Level {
        /// Only what makes a request or the process fail.
        Error = "error",
        /// Also what an operator should look at.
        Warn = "warn",
        /// Also start, stop, reload, nodes in and out.
        Info = "info",
        /// Also single connections' troubles.
        Debug = "debug",
        /// Everything.
        Trace = "trace",
    }
}

/// Where access log lines go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessLogTarget {
    /// Nowhere.
    Off,
    /// To standard output.
    Stdout,
    /// To the end of this file.
    File(PathBuf),
}
