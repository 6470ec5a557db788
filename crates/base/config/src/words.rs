//! Settings whose value is one of a few words, and these words.

use std::path::PathBuf;

use serde::Serialize;

/// The policies of this version, as accepted by [`crate::ServiceConfig::policy`].
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

/// The first policies, which use only addresses and loads: nothing else is available under
/// `dispatch = "direct"`.
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

            /// Returns the variant with this word.
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
    /// How a request reaches a node from the service's address.
    DispatchMode {
        /// The dispatcher reads the request and forwards it and the response.
        Proxy = "proxy",
        /// The dispatcher answers with a redirect to the node.
        Redirect = "redirect",
        /// The dispatcher steers the client's packets to a node, which answers the client directly.
        Direct = "direct",
        /// As `Direct`, but the node that accepted a connection moves it to the node that should
        /// answer its request.
        Handoff = "handoff",
    }
}

impl DispatchMode {
    /// Whether clients' packets are steered to nodes, which answer directly.
    pub fn is_steered(self) -> bool {
        matches!(self, Self::Direct | Self::Handoff)
    }
}

words! {
    /// Which process decides which node answers a request under `dispatch = "handoff"`.
    HandoffDecision {
        /// The node that read the request, based on its view of the others.
        Local = "local",
        /// The active dispatcher, which has the loads of all nodes.
        Coordinator = "coordinator",
    }
}

words! {
    /// The transport of handoff messages between nodes.
    HandoffTransport {
        /// IP itself, with an experimental protocol number.
        Ip = "ip",
        /// UDP.
        Udp = "udp",
    }
}

words! {
    /// The protocol of a pool's servers.
    PoolProtocol {
        /// HTTP/1.1.
        Http = "http",
        /// FastCGI, for example php-fpm.
        Fcgi = "fastcgi",
        /// AJP13, for example Tomcat.
        Ajp = "ajp",
    }
}

words! {
    /// Which script of a FastCGI application is run.
    ScriptWord {
        /// The script named by the path.
        Extension = "extension",
        /// The script named by the path, otherwise a front controller.
        FrontController = "front-controller",
        /// Always the same script.
        Always = "always",
        /// No script: the application serves all paths below a prefix.
        Below = "below",
    }
}

words! {
    /// How a request identifies the server of its session.
    StickyBy {
        /// It does not: the policy selects a server for each request.
        Off = "off",
        /// By a cookie that nodes insert.
        Cookie = "cookie",
        /// By the server's name, which the application appends to the session id.
        Route = "route",
        /// By the hash of a cookie's value.
        CookieHash = "cookie-hash",
        /// By the hash of a header field's value.
        FieldHash = "field-hash",
    }
}

words! {
    /// The type of status reported by a pool's servers.
    StatusAgent {
        /// The servers are not asked.
        Off = "off",
        /// Tomcat with its manager application.
        Tomcat = "tomcat",
        /// The FastCGI process manager of PHP.
        PhpFpm = "php-fpm",
        /// Any application that answers with JSON.
        Json = "json",
    }
}

words! {
    /// The scope of `connections_max` of a server.
    ConnectionsScope {
        /// The requests of one node, if the server is on the node's own machine and no other node
        /// is; otherwise those of all nodes.
        Auto = "auto",
        /// The requests of all nodes together.
        Cluster = "cluster",
        /// The requests of each node.
        Node = "node",
    }
}

words! {
    /// The attribute SameSite of a cookie.
    SameSite {
        /// Sent when following links from other sites, but not with their other requests.
        Lax = "lax",
        /// Not sent with requests from other sites.
        Strict = "strict",
        /// Sent with all requests; only with `secure`.
        None = "none",
    }
}

words! {
    /// Statuses of responses that are stored.
    StorableStatuses {
        /// Successes, redirections, and 404, 405, 410, 451.
        Usual = "usual",
        /// All.
        Any = "any",
    }
}

words! {
    /// When responses with Set-Cookie are stored.
    ResponseCookies {
        /// Never.
        Never = "never",
        /// If the response is explicitly for shared caches.
        Shared = "shared",
        /// As if the field were absent.
        Always = "always",
    }
}

words! {
    /// How requests with cookies are handled.
    RequestCookies {
        /// They use and create only responses whose lifetime the application set.
        Explicit = "explicit",
        /// As if the field were absent.
        Ignore = "ignore",
    }
}

words! {
    /// Request directives that a cache obeys.
    ObeyedRequests {
        /// Those that cause no work for the application.
        Safe = "safe",
        /// All.
        All = "all",
    }
}

words! {
    /// Which symbolic links under a site's root are followed.
    Symlinks {
        /// Those whose target is below the root.
        Beneath = "beneath",
        /// None.
        Refuse = "refuse",
        /// All, wherever their target is.
        Follow = "follow",
    }
}

words! {
    /// How fields with `_` in their names are handled.
    UnderscoreFields {
        /// They are dropped.
        Drop = "drop",
        /// They are passed on like other fields.
        Pass = "pass",
        /// The request is refused.
        Refuse = "refuse",
    }
}

words! {
    /// Where the content of a site's folder is.
    ContentPlacement {
        /// On each node, complete.
        Local = "local",
        /// In one place that all nodes can access.
        Shared = "shared",
        /// In parts, each on some node.
        Partition = "partition",
    }
}

words! {
    /// Where dispatchers keep persistent state.
    StoreKind {
        /// In a file on each dispatcher.
        Embedded = "embedded",
        /// In an etcd cluster, which also holds the leader's lease.
        Etcd = "etcd",
    }
}

words! {
    /// Where packets are steered in the kernel.
    Attach {
        /// The first of the following that the device supports.
        Auto = "auto",
        /// In the device's driver.
        XdpNative = "xdp-native",
        /// Directly after the driver, for drivers without XDP.
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
        /// One JSON object per line.
        Json = "json",
    }
}

words! {
    /// The lowest severity of messages that is logged.
    Level {
        /// Only failures of a request or the process.
        Error = "error",
        /// Also conditions that an operator should check.
        Warn = "warn",
        /// Also start, stop and reload, and nodes added or removed.
        Info = "info",
        /// Also problems of single connections.
        Debug = "debug",
        /// Everything.
        Trace = "trace",
    }
}

/// The destination of access log lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessLogTarget {
    /// No log.
    Off,
    /// To standard output.
    Stdout,
    /// A file, to which lines are appended.
    File(PathBuf),
}
