//! An immutable picture of a set, for readers that do not wait.

use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;

use crate::address::ServerAddress;
use crate::error::TopologyError;
use crate::hello::MemberKind;
use crate::read_preference::ReadPreference;
use crate::sdam::{Member, choose};
use crate::server::Server;

/// The members of a set as they were known at one moment.
#[derive(Debug)]
pub struct SetDescription {
    members: Vec<Member>,
    /// In the order of `members`.
    servers: Vec<Arc<Server>>,
    primary: Option<Arc<Server>>,
}

/// One member, for reports.
#[derive(Debug, Clone)]
pub struct MemberView {
    /// Where it listens.
    pub address: ServerAddress,
    /// What it is.
    pub kind: MemberKind,
    /// Average round trip of a hello.
    pub round_trip: Option<Duration>,
    /// Why it is unknown.
    pub error: Option<Arc<TopologyError>>,
}

impl SetDescription {
    pub(crate) fn new(members: Vec<(Member, Arc<Server>)>) -> SetDescription {
        let (members, servers): (Vec<_>, Vec<_>) = members.into_iter().unzip();
        let primary = members
            .iter()
            .zip(&servers)
            .find(|(member, _)| member.kind == MemberKind::Primary)
            .map(|(_, server)| Arc::clone(server));
        SetDescription { members, servers, primary }
    }

    /// The primary.
    pub fn primary(&self) -> Option<&Arc<Server>> {
        self.primary.as_ref()
    }

    /// The member at this address.
    pub fn server(&self, address: &ServerAddress) -> Option<&Arc<Server>> {
        self.servers.iter().find(|server| server.address() == address)
    }

    /// All members, whatever their state.
    pub fn servers(&self) -> &[Arc<Server>] {
        &self.servers
    }

    /// All members, with their state.
    pub fn members(&self) -> impl Iterator<Item = MemberView> {
        self.members.iter().map(|member| MemberView {
            address: member.address.clone(),
            kind: member.kind,
            round_trip: member.round_trip,
            error: member.error.clone(),
        })
    }

    /// A member that the preference allows, at random among the equally near.
    pub(crate) fn select(
        &self,
        preference: &ReadPreference,
        local_threshold: Duration,
        heartbeat: Duration,
    ) -> Option<Arc<Server>> {
        if preference.is_primary() {
            return self.primary.clone();
        }
        let choice = choose(&self.members, preference, local_threshold, heartbeat);
        let index = match choice.len() {
            0 => return None,
            1 => 0,
            several => rand::rng().random_range(0..several),
        };
        self.servers.get(*choice.get(index)?).cloned()
    }

    /// As [`Self::select`], but not this one.
    pub(crate) fn select_another(
        &self,
        preference: &ReadPreference,
        than: &Server,
        local_threshold: Duration,
        heartbeat: Duration,
    ) -> Option<Arc<Server>> {
        if preference.is_primary() {
            return None;
        }
        let choice = choose(&self.members, preference, local_threshold, heartbeat);
        let servers = choice.into_iter().filter_map(|index| self.servers.get(index));
        let others: Vec<_> = servers.filter(|server| server.address() != than.address()).collect();
        match others.len() {
            0 => None,
            several => others.get(rand::rng().random_range(0..several)).map(|server| Arc::clone(server)),
        }
    }

    /// An error that no waiting will mend: members answer, but all that do are of another version or set.
    pub(crate) fn hopeless(&self) -> Option<Arc<TopologyError>> {
        let mut found = None;
        for member in &self.members {
            match &member.error {
                Some(error)
                    if matches!(
                        **error,
                        TopologyError::Incompatible { .. } | TopologyError::WrongSetName { .. }
                    ) =>
                {
                    found = Some(Arc::clone(error));
                }
                Some(_) => {}
                // Usable for something, or not heard of yet.
                None => return None,
            }
        }
        found
    }

    /// The latest failure of any member, for the log.
    pub(crate) fn any_error(&self) -> Option<Arc<TopologyError>> {
        self.members.iter().find_map(|member| member.error.clone())
    }
}
