//! The settings of fixed replies: a part of the settings table.

use std::path::PathBuf;

use crate::kind::{Form, Kind, number};
use crate::number::Unit;
use crate::table::table;

table! {
    /// A reply that is the same for every request, whatever its method: a text, a small file, a
    /// redirect or a refusal, such as 503 while an application is down. `headers` of the route and
    /// site add fields (`Retry-After`), `cache_control` is for successful ones.
    ReplyConfig at "reply" {
        /// Status of the reply. If unset, the route has no fixed reply. Without `body` and `file`, 4xx and 5xx have the
        /// page of `error_pages`, or a line.
        status: Option<u16> = None => number(Unit::Status, 200..=599), live;
        /// Its body.
        body: Option<String> = None => Kind::Text(Form::Prose), live;
        /// File of its body, at most 1 MiB; it is read at the start and with each reload.
        file: Option<PathBuf> = None => Kind::Text(Form::Path), live;
        /// Type of its body.
        content_type: String = "text/plain; charset=utf-8".into()
            => Kind::Text(Form::FieldValue), live;
        /// Where a redirect leads; a `*` at its end is what the `*` at the end of the route's `path`
        /// stood for, or the whole path for a site.
        location: Option<String> = None => Kind::Text(Form::UrlTarget), live;
    }
}
