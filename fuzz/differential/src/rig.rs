//! Lanes: each plays one case after the other on all three peers.

use std::io;
use std::sync::Arc;

use crate::case::Case;
use crate::client;
use crate::compare::{self, Did, Difference};
use crate::origin::Origin;
use crate::peers::{NAMES, Peer};
use crate::run::Run;
use crate::said;
use crate::tolerated;

const MALFORMED: &str = "passed on malformed";
const HANGS: &str = "hangs";
const UNSAID: &str = "clients hear what the origin has not said";

/// Kinds of findings that count even if they are not repeated, since a busy machine cannot cause them. It can
/// cause the others: what reaches an origin late is counted for the next case.
pub(crate) const CERTAIN: [&str; 2] = [MALFORMED, HANGS];

/// All peers in front of all origins.
pub(crate) struct Rig {
    peers: Vec<Peer>,
    /// By peer, then by lane.
    origins: Vec<Vec<Origin>>,
}

/// The result of a case.
#[derive(Clone, Debug, Default)]
pub(crate) struct Verdict {
    /// What each peer did.
    pub(crate) did: Vec<Did>,
    /// Whether all three parsed all of it as intended.
    pub(crate) is_accepted: bool,
    /// Rows of the table of tolerated differences that applied.
    pub(crate) tolerated: Vec<&'static str>,
    /// Findings that no row tolerates, as text; each preceded by a short one that identifies the kind.
    pub(crate) findings: Vec<(String, String)>,
}

impl Rig {
    /// Starts three peers with `lanes` lanes.
    pub(crate) fn start(run: &Run, lanes: usize) -> io::Result<Self> {
        let mut rig = Self { peers: Vec::new(), origins: Vec::new() };
        for number in 0..NAMES.len() {
            let origins = (0..lanes).map(|_| Origin::start()).collect::<io::Result<Vec<_>>>()?;
            let addresses: Vec<_> = origins.iter().map(Origin::address).collect();
            rig.peers.push(Peer::start(number, run, &addresses)?);
            rig.origins.push(origins);
        }
        Ok(rig)
    }

    /// The name of a peer that has ended, if any.
    pub(crate) fn dead(&mut self) -> Option<&'static str> {
        self.peers.iter_mut().zip(NAMES).find_map(|(peer, name)| (!peer.runs()).then_some(name))
    }

    /// Plays a case in a lane, on one peer after the other.
    pub(crate) fn play(&self, lane: usize, case: &Case) -> io::Result<Verdict> {
        let shared = Arc::new(case.clone());
        let mut verdict = Verdict::default();
        for (peer, origins) in self.peers.iter().zip(&self.origins) {
            let origin = &origins[lane];
            origin.begin(&shared);
            let raw = client::play(peer.address(lane), case)?;
            let received = origin.end();
            let meant = |number: usize| {
                case.requests.get(number).is_some_and(|it| it.starts_with(b"HEAD "))
            };
            let is_head = |number: usize| {
                received.get(number).map_or_else(|| meant(number), |it| it.head.word(0) == "HEAD")
            };
            let heard = client::take_apart(&raw, is_head);
            let all = received.len();
            let passed: Vec<_> = received.into_iter().filter(|it| it.body.is_some()).collect();
            verdict.did.push(Did { begun: all - passed.len(), passed, heard });
        }
        judge(case, &mut verdict);
        Ok(verdict)
    }
}

fn judge(case: &Case, verdict: &mut Verdict) {
    let meant = case.requests.len() + 1;
    let took_all = |did: &Did| {
        let end = did.passed.last().is_some_and(|it| it.head.word(1) == crate::case::END_TARGET);
        end && did.passed.len() == meant && did.heard.responses.len() == meant
    };
    verdict.is_accepted = verdict.did.iter().all(took_all);
    let skep = &verdict.did[0];
    for passed in &skep.passed {
        if let Some(what) = compare::malformed(passed) {
            verdict.findings.push((MALFORMED.into(), what));
        }
    }
    if skep.heard.hung {
        verdict.findings.push((HANGS.into(), "neither an answer nor a close".into()));
    }
    if let Some(what) = said::unsaid(case, skep) {
        verdict.findings.push((UNSAID.into(), what));
    }
    for (with, other) in verdict.did.iter().enumerate().skip(1) {
        let Some(difference) = compare::difference(skep, other, with) else { continue };
        match tolerated::row(&difference, case, &verdict.did) {
            Some(name) => verdict.tolerated.push(name),
            None => verdict.findings.push(in_words(&difference)),
        }
    }
}

fn in_words(difference: &Difference) -> (String, String) {
    use crate::compare::What;
    let other = NAMES[difference.with];
    let status = |status: Option<u16>| status.map_or("nothing".into(), |it| it.to_string());
    let kind = match &difference.what {
        What::OnlySkep { status: said } => {
            format!("only skep passes it, {other} says {}", status(*said))
        }
        What::OnlyOther { status: said } => {
            format!("only {other} passes it, skep says {}", status(*said))
        }
        What::Passed { part, .. } => format!("skep and {other} pass another {part}"),
        What::Heard { part, .. } => format!("clients of skep and {other} get another {part}"),
    };
    let long = match &difference.what {
        What::Passed { skep, other, .. } | What::Heard { skep, other, .. } => {
            format!("skep: {skep:?}\nother: {other:?}")
        }
        _ => String::new(),
    };
    (kind, format!("message {}\n{long}", difference.at))
}
