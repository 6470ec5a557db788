//! The settings of fixed replies: a part of the settings table.

use std::path::PathBuf;

use crate::kind::{Form, Kind, number};
use crate::number::Unit;
use crate::table::table;

table! {
    /// A reply that is the same for every request, whatever its method: a text, a small file, a redirect or a
    /// refusal, such as 503 while an application is down. `headers` of the route and site add fields, such as
    /// `Retry-After`; `cache_control` applies to successful replies.
    ReplyConfig at "reply" {
        /// Status of the reply. If unset, the route has no fixed reply. Replies with 4xx and 5xx that have
        /// neither `body` nor `file` get the page of `error_pages`, or one line of text.
        status: Option<u16> = None => number(Unit::Status, 200..=599), live;
        /// Text of its body.
        body: Option<String> = None => Kind::Text(Form::Prose), live;
        /// File with its body, at most 1 MiB; it is read at the start and at each reload.
        file: Option<PathBuf> = None => Kind::Text(Form::Path), live;
        /// Media type of its body.
        content_type: String = "text/plain; charset=utf-8".into()
            => Kind::Text(Form::FieldValue), live;
        /// Target of a redirect; a `*` at its end stands for what the `*` at the end of the route's `path`
        /// matched, or for the whole path if the reply is that of a site.
        location: Option<String> = None => Kind::Text(Form::UrlTarget), live;
    }
}
