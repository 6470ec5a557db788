//! A minimal cache that takes every decision from the crate; the cases and the properties run
//! against it.

use skep_http::forward::write_kept_fields;
use skep_http::limits::RESPONSE_HEAD;
use skep_http::{
    FieldSlots, HttpDate, Method, RequestHead, ResponseHead, parse_request, parse_response,
};
use skep_httpcache::{
    CachePolicy, CacheStatus, ExchangeTimes, FieldLine, ForwardReason, Freshness, HeadUpdate,
    KeyRules, OnFailure, OriginFailure, RequestMeta, ResponseMeta, Reuse, SecondaryKey,
    StoredReply, StoredVariant, TargetUri, Validated, head_update, invalidated, is_stored_field,
    may_forward, on_failure, reuse, select_variant, store, stored_reply, updated, validated,
};

/// Length of every body.
const BODY_BYTES: u64 = 11;

/// How an exchange ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Hit(StoredReply),
    Forwarded,
    Validated,
    /// The stored response was sent because the origin failed.
    Stale,
    /// 502 or 504 because the origin failed.
    Error,
    /// 504 because the request accepts only a stored response.
    Timeout,
}

struct Entry {
    key: Vec<u8>,
    secondary: SecondaryKey,
    meta: ResponseMeta,
    lines: Vec<u8>,
    freshness: Freshness,
}

pub(crate) struct Model {
    policy: CachePolicy,
    rules: KeyRules,
    entries: Vec<Entry>,
    pub(crate) now_unix_ms: u64,
    /// The lines of the last reply.
    pub(crate) reply: String,
}

impl Model {
    pub(crate) fn new(policy: CachePolicy) -> Self {
        Self {
            policy,
            rules: KeyRules::default(),
            entries: Vec::new(),
            now_unix_ms: 1_795_000_000_500,
            reply: String::new(),
        }
    }

    /// Sends a request, to which the origin responds with `response`; `None`: it does not respond.
    pub(crate) fn exchange(&mut self, request: &str, response: Option<&str>) -> Outcome {
        let mut slots = FieldSlots::new();
        let head = parse_request(&mut slots, request.as_bytes(), &RESPONSE_HEAD).expect(request);
        let meta = RequestMeta::of(&head, &self.policy);
        if may_forward(&meta, &self.policy).is_err() && self.find(&head).is_none() {
            return Outcome::Timeout;
        }
        let Some(place) = self.find(&head) else { return self.forward(&head, response, None) };
        let (resident_ms, entry) = (self.resident_ms(place), &self.entries[place]);
        match reuse(&entry.freshness, &meta, resident_ms, &self.policy) {
            Reuse::Send(_) => self.send(&head, place),
            Reuse::SendAndValidate(_) => {
                let outcome = self.send(&head, place);
                let reply = self.reply.clone();
                self.forward(&head, response, Some(place));
                self.reply = reply;
                outcome
            }
            Reuse::Validate(_) | Reuse::Bypass(_) => self.forward(&head, response, Some(place)),
            Reuse::GatewayTimeout(_) => Outcome::Timeout,
        }
    }

    fn resident_ms(&self, place: usize) -> u64 {
        self.now_unix_ms - self.entries[place].meta.times.received_unix_ms
    }

    fn key(&self, head: &RequestHead<'_, '_>) -> Vec<u8> {
        let target = self.rules.target(head.target.as_bytes());
        self.rules.key("http", &head.authority, &target, head).expect("no cookies in the key")
    }

    fn find(&self, head: &RequestHead<'_, '_>) -> Option<usize> {
        let key = self.key(head);
        let places: Vec<_> =
            (0..self.entries.len()).filter(|place| self.entries[*place].key == key).collect();
        let variant = |place: &usize| {
            let Entry { secondary: key, meta, .. } = &self.entries[*place];
            StoredVariant { vary: &meta.vary, key, made_unix_s: meta.made_unix_s() }
        };
        let variants: Vec<_> = places.iter().map(variant).collect();
        select_variant(&variants, request_lines(head)).map(|found| places[found])
    }

    fn send(&mut self, head: &RequestHead<'_, '_>, place: usize) -> Outcome {
        let (entry, resident_ms) = (&self.entries[place], self.resident_ms(place));
        let now_unix_s = self.now_unix_ms / 1000;
        let reply = stored_reply(head, &entry.meta, BODY_BYTES, 8, now_unix_s);
        self.reply = reply_lines(entry, resident_ms);
        Outcome::Hit(reply)
    }

    /// Forwards a request, on condition that the response stored at `place` has changed.
    fn forward(
        &mut self,
        head: &RequestHead<'_, '_>,
        response: Option<&str>,
        place: Option<usize>,
    ) -> Outcome {
        let Some(response) = response else {
            return self.fail(OriginFailure::Disconnected, place).unwrap_or(Outcome::Error);
        };
        let mut slots = FieldSlots::new();
        let method = if head.method == Method::Head { Method::Head } else { Method::Get };
        let answer = parse_response(&mut slots, response.as_bytes(), method, &RESPONSE_HEAD)
            .expect(response);
        let now = self.now_unix_ms;
        let times = ExchangeTimes { requested_unix_ms: now, received_unix_ms: now };
        let meta = ResponseMeta::parse(answer.status, response_lines(&answer), times);
        self.reply = String::from_utf8(kept_lines(&answer, &meta, &self.policy)).unwrap();
        if self.policy.failures.has(answer.status)
            && let Some(outcome) = self.fail(OriginFailure::Status(answer.status), place)
        {
            return outcome;
        }
        self.invalidate(head, &answer);
        match (head.method, place) {
            (Method::Head, Some(place)) => self.take_head(place, &meta),
            (Method::Get, Some(place)) if self.renew(head, place, &meta) => {
                return Outcome::Validated;
            }
            (Method::Get, place) => self.take(head, place, meta),
            _ => {}
        }
        Outcome::Forwarded
    }

    fn fail(&mut self, failure: OriginFailure, place: Option<usize>) -> Option<Outcome> {
        let place = place?;
        let (entry, resident_ms) = (&self.entries[place], self.resident_ms(place));
        match on_failure(&entry.freshness, failure, resident_ms, &self.policy) {
            OnFailure::SendStale(_) => {
                self.reply = reply_lines(entry, resident_ms);
                Some(Outcome::Stale)
            }
            OnFailure::SendError(_) => None,
        }
    }

    fn invalidate(&mut self, head: &RequestHead<'_, '_>, answer: &ResponseHead<'_, '_>) {
        let target = TargetUri {
            scheme: "http",
            authority: head.authority,
            path_and_query: head.target.as_bytes(),
        };
        let fields = response_lines(answer);
        for path in invalidated(head.method, answer.status, &target, fields) {
            let key = self.rules.key("http", &head.authority, &path, head).unwrap();
            self.entries.retain(|entry| entry.key != key);
        }
    }

    /// Whether a 304 renewed the stored response.
    fn renew(&mut self, head: &RequestHead<'_, '_>, place: usize, answer: &ResponseMeta) -> bool {
        let request = RequestMeta::of(head, &self.policy);
        let entry = &self.entries[place];
        if validated(&[&entry.meta], answer) != Validated::Fresh(vec![0]) {
            return false;
        }
        let stored = (&entry.meta, lines(&entry.lines));
        let answer = (answer, lines(self.reply.as_bytes()));
        let updated = updated(stored, answer, &request, &self.policy);
        let Ok((meta, text)) = updated else { return false };
        let freshness = Freshness::of(&meta, &self.policy);
        let entry = &mut self.entries[place];
        (entry.meta, entry.lines, entry.freshness) = (meta, text, freshness);
        self.reply = reply_lines(&self.entries[place], 0);
        true
    }

    fn take_head(&mut self, place: usize, answer: &ResponseMeta) {
        let entry = &mut self.entries[place];
        match head_update(&entry.meta, BODY_BYTES, answer, None) {
            HeadUpdate::Update => {
                let request = RequestMeta::PLAIN_GET;
                let stored = (&entry.meta, lines(&entry.lines));
                let answer = (answer, lines(self.reply.as_bytes()));
                if let Ok((meta, text)) = updated(stored, answer, &request, &self.policy) {
                    entry.freshness = Freshness::of(&meta, &self.policy);
                    (entry.meta, entry.lines) = (meta, text);
                    self.reply = reply_lines(&self.entries[place], 0);
                }
            }
            HeadUpdate::Invalidate => drop(self.entries.remove(place)),
            HeadUpdate::Nothing => {}
        }
    }

    fn take(&mut self, head: &RequestHead<'_, '_>, place: Option<usize>, meta: ResponseMeta) {
        if let Some(place) = place {
            self.entries.remove(place);
        }
        let request = RequestMeta::of(head, &self.policy);
        let key = self.key(head);
        let Ok(freshness) = store(&request, &meta, &self.policy) else { return };
        let Some(secondary) = meta.vary.secondary_key(request_lines(head)) else { return };
        let lines = self.reply.clone().into_bytes();
        self.entries.push(Entry { key, secondary, meta, lines, freshness });
    }
}

/// The lines of a reply from the store: with Age, the stored Date, and Cache-Status.
fn reply_lines(entry: &Entry, resident_ms: u64) -> String {
    let mut text = String::from_utf8(entry.lines.clone()).unwrap();
    let age_s = entry.freshness.age_ms(resident_ms) / 1000;
    let date = HttpDate(entry.meta.made_unix_s()).format();
    let status = CacheStatus {
        forwarded: (!entry.freshness.is_fresh(resident_ms)).then_some(ForwardReason::Stale),
        ttl_s: Some(entry.freshness.ttl_s(resident_ms)),
        ..CacheStatus::default()
    };
    let status = String::from_utf8(status.line()).unwrap();
    text += &format!("Age: {age_s}\r\nDate: {}\r\n{status}", String::from_utf8_lossy(&date));
    text
}

fn kept_lines(head: &ResponseHead<'_, '_>, meta: &ResponseMeta, policy: &CachePolicy) -> Vec<u8> {
    let mut lines = Vec::new();
    write_kept_fields(&mut lines, head, |name| {
        let is_of_exchange = [&b"age"[..], b"date"].iter().any(|it| name.eq_ignore_ascii_case(it));
        is_of_exchange || !is_stored_field(name, meta, policy)
    });
    lines
}

fn request_lines<'b>(head: &RequestHead<'_, 'b>) -> impl Iterator<Item = FieldLine<'b>> + Clone {
    head.fields.iter().map(|(name, value)| (name.as_bytes(), value))
}

fn response_lines<'b>(head: &ResponseHead<'_, 'b>) -> impl Iterator<Item = FieldLine<'b>> + Clone {
    head.fields.iter().map(|(name, value)| (name.as_bytes(), value))
}

/// Lines `Name: value\r\n` as names and values.
fn lines(text: &[u8]) -> impl Iterator<Item = FieldLine<'_>> + Clone {
    text.split(|byte| *byte == b'\n').filter_map(|line| {
        let at = line.iter().position(|byte| *byte == b':')?;
        Some((&line[..at], line[at + 1..].trim_ascii()))
    })
}
