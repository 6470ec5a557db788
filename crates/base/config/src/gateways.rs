//! Settings of pools whose servers use FastCGI or AJP: a part of the settings table.

use std::path::PathBuf;

use skep_units::KIB;

use crate::kind::{Form, HOUR_MS, Kind, MINUTE_MS, TIB, bytes, ms, word};
use crate::table::table;
use crate::words::ScriptWord;

table! {
    /// Parameters for FastCGI applications such as php-fpm. Only with
    /// `protocol = "fastcgi"`.
    FcgiConfig at "fastcgi" {
        /// Folder of the scripts, as the application sees it: DOCUMENT_ROOT, and the beginning of
        /// SCRIPT_FILENAME. It does not have to exist on this machine.
        root: Option<PathBuf> = None => Kind::Text(Form::Path), live;
        /// Which script is run. `extension`: the one that the path names, up to the first segment that ends
        /// with `extension`; the rest of the path is PATH_INFO. `front-controller`: the same, and `index` for
        /// paths that name none, as most PHP applications require. `always`: `index` for every path. `below`:
        /// none; the whole path below `mount` is PATH_INFO.
        script: ScriptWord = ScriptWord::Extension => word(ScriptWord::WORDS), live;
        /// Ending of the names of scripts, with its dot. Files below the `root` of a site or route that have
        /// this ending are scripts, too: they are run, and never sent.
        extension: String = ".php".into() => Kind::Text(Form::FileName), live;
        /// Script for paths that end with a slash; with `front-controller` also for all others that name none,
        /// with `always` for every path.
        index: String = "index.php".into() => Kind::Text(Form::FileName), live;
        /// Path at which the application begins, for `script = "below"`; if unset, it is `/`.
        mount: Option<String> = None => Kind::Text(Form::UrlPath), live;
        /// Additional parameters, which replace those of the same name, such as `{ APP_ENV = "prod" }`.
        params: Vec<(String, String)> = Vec::new() => Kind::Params, live;
        /// Whether connections are kept for further requests. Each occupies a worker of php-fpm, which then
        /// serves no other connection, and each thread keeps its own: enable it only if there are more workers
        /// than `threads` times `connections_max` of all nodes.
        keep_conn: bool = false => Kind::Switch, live;
        /// Maximum size of a body of unknown length, which is collected before the request is passed on, since
        /// FastCGI sends the length first. If unset, it is what `buffer_bytes_max` and `[spool]` allow for one
        /// body. Over it: 411.
        collect_bytes_max: Option<u64> = None => bytes(0..=TIB), live;
    }
}

table! {
    /// Settings of AJP for servlet engines such as Tomcat. Only with `protocol = "ajp"`.
    AjpConfig at "ajp" {
        /// File whose only line is the `secret` of the server's Connector. It must not be readable by
        /// everybody. Required if a server is not on this machine: anyone who can reach an AJP port can forge
        /// the client's identity.
        secret_file: Option<PathBuf> = None => Kind::Text(Form::Path), live;
        /// Size of a packet: the same value as the Connector's `packetSize`. It limits the head of a request
        /// and of a reply.
        packet_bytes_max: u64 = 8 * KIB => bytes(8 * KIB..=64 * KIB), live;
        /// Idle time after which a connection is tested by CPING before it is used for a request: the server
        /// may have died or hang without having closed it. 0 tests each time.
        ping_idle_ms: u64 = 1000 => ms(0..=HOUR_MS), live;
        /// Time for the answer. Without one, the connection is closed, and a new one is tested as well; if that
        /// is not answered either, the request goes to another server.
        ping_timeout_ms: u64 = 2000 => ms(1..=MINUTE_MS), live;
    }
}
