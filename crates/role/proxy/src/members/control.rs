//! An operator's commands to a running group, called by the admin API.

use std::sync::Arc;

use skep_cluster::{Member, MembershipError};
use skep_comparison::{ArmSpec, Arms, ArmsError};
use skep_http::Host;
use skep_policy::UnknownPolicy;
use skep_units::{NodeId, Now, ServerAddress};

use crate::members::comparison::{Comparison, ComparisonStatus};
use crate::members::group::Group;
use crate::members::settings::{GroupSettings, GroupWords, MemberSpec};
use crate::members::state::GroupState;
use crate::members::status::MemberSource;

/// The operator's command cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GroupControlError {
    /// No member has this name.
    #[error(
        "{} {group} has no {} \"{name}\"{}; its {}s: {}",
        words.group,
        words.member,
        hint(did_you_mean),
        words.member,
        list(known)
    )]
    UnknownMember {
        words: &'static GroupWords,
        group: String,
        /// The name in the command.
        name: String,
        /// The nearest name, if one is near.
        did_you_mean: Option<String>,
        /// The names of all members.
        known: Vec<String>,
    },
    /// The table of members rejects the change.
    #[error(transparent)]
    Refused(#[from] MembershipError),
    /// No policy has this name.
    #[error(transparent)]
    UnknownPolicy(#[from] UnknownPolicy),
    /// The policy exists but cannot be used by this group.
    #[error(
        "{} {group} can't have policy \"{policy}\", {why}; one of {}",
        words.group,
        known.join(", ")
    )]
    UnfitPolicy {
        words: &'static GroupWords,
        group: String,
        /// The name in the command.
        policy: String,
        why: &'static str,
        known: &'static [&'static str],
    },
    /// The arms do not form an A/B test.
    #[error(transparent)]
    Arms(#[from] ArmsError),
    /// The policies of this group cannot be compared.
    #[error("policies of {} {group} can't be compared, {why}", words.group)]
    NoComparison { words: &'static GroupWords, group: String, why: &'static str },
    /// The group has no A/B test.
    #[error("no policies of {} {group} are being compared", words.group)]
    NotComparing { words: &'static GroupWords, group: String },
    /// The group must keep at least one member.
    #[error(
        "\"{name}\" is the last {} of {} {group}, which would answer 503 without it: add another \
         one first",
        words.member,
        words.group
    )]
    LastMember {
        words: &'static GroupWords,
        group: String,
        /// The name in the command.
        name: String,
    },
    /// Clients cannot be redirected to the address of the member.
    #[error("\"{0}\" is no host and port for clients, such as \"www1.example.org:8080\"")]
    BadPublicAddress(String),
    /// The address of the member cannot be connected to.
    #[error("{0} is no address that can be connected to: give a machine's own address and a port")]
    BadAddress(Box<ServerAddress>),
}

impl Group {
    /// Adds a member, which stays across reloads. It gets requests after its first successful check.
    /// `public_address` is used in redirects; `None`: `address`.
    ///
    /// # Errors
    /// The name or address is taken or malformed, or the weight is out of bounds.
    pub fn add(
        &self,
        name: &str,
        address: impl Into<ServerAddress>,
        weight: u32,
        public_address: Option<&str>,
    ) -> Result<(), GroupControlError> {
        let address = address.into();
        let authority = match public_address {
            Some(public) => checked_authority(public)?,
            None => address.to_string(),
        };
        self.add_member(MemberSpec {
            name: name.to_owned(),
            address,
            weight,
            authority,
            requests_max: u32::MAX,
            slots: Some(u32::MAX),
        })
    }

    /// The same with a bound on its requests, all of which one worker may use.
    ///
    /// # Errors
    /// The name or address is taken or malformed, or the weight is out of bounds.
    pub fn add_member(&self, new: MemberSpec) -> Result<(), GroupControlError> {
        if !new.address.is_specified() {
            return Err(GroupControlError::BadAddress(Box::new(new.address)));
        }
        self.change(|state, now| {
            let (name, requests_max) = (new.name.clone(), new.requests_max);
            state.add(now, new, MemberSource::Api)?;
            state.removed.remove(&name);
            if requests_max != u32::MAX {
                state.make_room_for(requests_max as usize);
            }
            Ok(())
        })
    }

    /// Removes a member: it gets no new requests, and is gone when its last request has ended, or after
    /// `timeout_ms`. Requests still in progress then continue without being tracked. A member of the config
    /// file does not return with a reload, unless the file was without it in between.
    ///
    /// # Errors
    /// The name is unknown.
    pub fn remove(&self, name: &str, timeout_ms: u64) -> Result<(), GroupControlError> {
        self.with_member(name, |state, now, id| remove(state, now, id, name, timeout_ms))
    }

    /// The same, unless no other member would be left.
    ///
    /// # Errors
    /// The name is unknown, or all other members are being removed.
    pub fn remove_unless_last(&self, name: &str, timeout_ms: u64) -> Result<(), GroupControlError> {
        self.with_member(name, |state, now, id| {
            let stays = |it: &Member| it.id() != id && it.removal_deadline().is_none();
            if !state.membership.members().iter().any(stays) {
                let (words, group) = (state.words, state.name.to_string());
                return Err(GroupControlError::LastMember { words, group, name: name.to_owned() });
            }
            remove(state, now, id, name, timeout_ms)
        })
    }

    /// Stops new requests to a member; requests in progress continue. Its state becomes `drained` when they
    /// have ended.
    ///
    /// # Errors
    /// The name is unknown.
    pub fn drain(&self, name: &str) -> Result<(), GroupControlError> {
        self.set_drained(name, true, None)
    }

    /// Allows requests to a member again, as soon as its checks succeed.
    ///
    /// # Errors
    /// The name is unknown, or the member is being removed.
    pub fn resume(&self, name: &str) -> Result<(), GroupControlError> {
        self.set_drained(name, false, None)
    }

    /// Drains or resumes a member as the active dispatcher did, known here since `at`. A command given here
    /// at that time or later takes precedence.
    ///
    /// # Errors
    /// As for [`Self::drain`] and [`Self::resume`].
    pub fn follow_drain(
        &self,
        name: &str,
        is_drained: bool,
        at: Now,
    ) -> Result<(), GroupControlError> {
        self.set_drained(name, is_drained, Some(at))
    }

    /// Changes a member's weight under weighted policies.
    ///
    /// # Errors
    /// The name is unknown, or the weight is out of bounds.
    pub fn set_weight(&self, name: &str, weight: u32) -> Result<(), GroupControlError> {
        self.with_member(name, |state, now, id| {
            let event = state.membership.set_weight(now, id, weight)?;
            state.note(event);
            Ok(())
        })
    }

    /// Changes the policy, from the next request on. It stays in force until the config file names another
    /// one.
    ///
    /// # Errors
    /// The name is unknown, or the policy cannot be used by this group.
    pub fn set_policy(&self, policy: &str) -> Result<(), GroupControlError> {
        self.change(|state, _| {
            check_policy(state, policy)?;
            if state.settings.policy != policy {
                let was = &state.settings.policy;
                tracing::info!("{} {}: policy {was} -> {policy}", state.words.group, state.name);
                let settings = GroupSettings {
                    policy: policy.to_owned(),
                    ..GroupSettings::clone(&state.settings)
                };
                state.settings = settings.into();
                state.unpublished = true;
                state.revision += 1;
            }
            Ok(())
        })
    }

    /// Compares policies by an A/B test, from the next request on, in place of the current test. Clients of a
    /// test with the same arms keep theirs, and counting restarts. The test continues until the config file
    /// names other arms.
    ///
    /// # Errors
    /// The arms do not form a test, or a policy or member is unknown.
    pub fn start_comparison(&self, arms: Vec<ArmSpec>) -> Result<(), GroupControlError> {
        self.change(|state, now| {
            if let Some(why) = state.settings.no_comparison {
                let (words, group) = (state.words, state.name.to_string());
                return Err(GroupControlError::NoComparison { words, group, why });
            }
            for arm in &arms {
                check_policy(state, &arm.policy)?;
            }
            let arms = Arms::new(&state.name, arms)?;
            for node in arms.list().iter().flat_map(|arm| &arm.nodes) {
                if state.membership.find(node).is_none() {
                    return Err(unknown(state, node));
                }
            }
            state.begin_comparison(arms, now);
            Ok(())
        })
    }

    /// Ends the A/B test: the group's policy applies to all clients, from the next request on.
    ///
    /// # Errors
    /// There is no A/B test.
    pub fn stop_comparison(&self) -> Result<ComparisonStatus, GroupControlError> {
        self.change(|state, now| {
            let Some(comparison) = state.comparison.take() else {
                return Err(not_comparing(state));
            };
            tracing::info!(
                "{} {}: no policies are compared any more",
                state.words.group,
                state.name
            );
            state.unpublished = true;
            state.revision += 1;
            Ok(comparison.status(now))
        })
    }

    /// The counts of the current A/B test.
    ///
    /// # Errors
    /// There is no A/B test.
    pub fn comparison_status(&self) -> Result<ComparisonStatus, GroupControlError> {
        self.change(|state, now| match &state.comparison {
            Some(comparison) => Ok(comparison.status(now)),
            None => Err(not_comparing(state)),
        })
    }

    /// The current A/B test.
    pub fn comparison(&self) -> Option<Arc<Comparison>> {
        self.published().load().comparison.clone()
    }

    /// Without `at` it is a command, which takes effect now.
    fn set_drained(
        &self,
        name: &str,
        is_drained: bool,
        known_at: Option<Now>,
    ) -> Result<(), GroupControlError> {
        self.with_member(name, |state, now, id| {
            let commanded_at = state.details.get(&id).and_then(|details| details.drain_set_at);
            if known_at.is_some_and(|known_at| commanded_at >= Some(known_at)) {
                return Ok(());
            }
            let event = match is_drained {
                true => state.membership.drain(now, id)?,
                false => state.membership.resume(now, id)?,
            };
            if let Some(details) = state.details.get_mut(&id).filter(|_| known_at.is_none()) {
                details.drain_set_at = Some(now);
            }
            state.note(event);
            Ok(())
        })
    }

    /// The address of the member called `name`, and the settings of its group.
    ///
    /// # Errors
    /// The name is unknown.
    pub(crate) fn address_of(
        &self,
        name: &str,
    ) -> Result<(ServerAddress, Arc<GroupSettings>), GroupControlError> {
        self.change(|state, _| match state.membership.find(name) {
            Some(member) => Ok((member.address(), Arc::clone(&state.settings))),
            None => Err(unknown(state, name)),
        })
    }

    fn with_member(
        &self,
        name: &str,
        job: impl FnOnce(&mut GroupState, Now, NodeId) -> Result<(), GroupControlError>,
    ) -> Result<(), GroupControlError> {
        self.change(|state, now| {
            let id = match state.membership.find(name) {
                Some(member) => member.id(),
                None => return Err(unknown(state, name)),
            };
            job(state, now, id)
        })
    }
}

impl GroupState {
    /// Starts an A/B test with these arms.
    pub(crate) fn begin_comparison(&mut self, arms: Arms, now: Now) {
        let (group, name) = (self.words.group, &self.name);
        let told = arms.list().iter().map(|arm| format!("{} ({})", arm.name, arm.policy));
        let told = told.collect::<Vec<_>>().join(", ");
        tracing::info!("{group} {name}: policies are compared: {told}");
        let is_by_hash = self.settings.arms_by_hash;
        let comparison = Comparison::new(arms, now, self.comparison.as_deref(), is_by_hash);
        self.comparison = Some(Arc::new(comparison));
        self.unpublished = true;
        self.revision += 1;
    }
}

fn not_comparing(state: &GroupState) -> GroupControlError {
    GroupControlError::NotComparing { words: state.words, group: state.name.to_string() }
}

fn check_policy(state: &GroupState, policy: &str) -> Result<(), GroupControlError> {
    skep_policy::build(policy, 0)?;
    let (known, why) = state.settings.policies;
    if known.contains(&policy) {
        return Ok(());
    }
    let (group, policy) = (state.name.to_string(), policy.to_owned());
    Err(GroupControlError::UnfitPolicy { words: state.words, group, policy, why, known })
}

fn remove(
    state: &mut GroupState,
    now: Now,
    id: NodeId,
    name: &str,
    timeout_ms: u64,
) -> Result<(), GroupControlError> {
    let event = state.membership.remove(now, id, now.plus_ms(timeout_ms))?;
    state.note(Some(event));
    state.removed.insert(name.to_owned());
    Ok(())
}

/// The address becomes part of a header line, so only a valid host and port are allowed.
fn checked_authority(public: &str) -> Result<String, GroupControlError> {
    match Host::parse(public.as_bytes()) {
        Ok(host) if host.port != Some(0) => Ok(public.to_owned()),
        _ => Err(GroupControlError::BadPublicAddress(public.to_owned())),
    }
}

fn unknown(state: &GroupState, name: &str) -> GroupControlError {
    let known: Vec<String> =
        state.membership.members().iter().map(Member::name).map(|name| name.to_string()).collect();
    let nearest = skep_units::nearest(name, known.iter().map(String::as_str));
    GroupControlError::UnknownMember {
        words: state.words,
        group: state.name.to_string(),
        name: name.to_owned(),
        did_you_mean: nearest.map(str::to_owned),
        known,
    }
}

fn hint(did_you_mean: &Option<String>) -> String {
    did_you_mean.as_ref().map_or_else(String::new, |name| format!("; did you mean \"{name}\"?"))
}

fn list(known: &[String]) -> String {
    if known.is_empty() { "none".to_owned() } else { known.join(", ") }
}
