//! One replica set: the config servers or a shard.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use bson::{Bson, Document, doc};
use futures_util::future::try_join_all;
use mongodb::Client;

use crate::member::{Member, MemberOptions, Role};
use crate::wait::eventually_within;

/// Elections within a second or two: tests wait for them.
const ELECTION_TIMEOUT_MS: i32 = 1_500;
const HEARTBEAT_MS: i32 = 300;
const READY_LIMIT: Duration = Duration::from_secs(60);

/// The members of one replica set.
pub struct ReplicaSet {
    name: String,
    members: Vec<Member>,
}

impl ReplicaSet {
    /// Starts `count` members, makes them a set and waits until it has a primary and all others are secondaries.
    pub(crate) async fn start(options: MemberOptions, count: usize) -> Result<Self> {
        let name = options.set_name.clone();
        let options = Arc::new(options);
        let starts =
            (0..count).map(|index| Member::start_new(format!("{name}-{index}"), Arc::clone(&options)));
        let set = Self { members: try_join_all(starts).await?, name };
        set.initiate(options.role).await.with_context(|| format!("initiating {}", set.name))?;
        Ok(set)
    }

    async fn initiate(&self, role: Role) -> Result<()> {
        let members: Vec<Bson> = (0_i32..)
            .zip(&self.members)
            .map(|(id, member)| Bson::Document(doc! { "_id": id, "host": member.address() }))
            .collect();
        let mut config = doc! {
            "_id": &self.name,
            "version": 1,
            "members": members,
            "settings": {
                "electionTimeoutMillis": ELECTION_TIMEOUT_MS,
                "heartbeatIntervalMillis": HEARTBEAT_MS,
                "heartbeatTimeoutSecs": 2,
            },
        };
        if role == Role::Config {
            config.insert("configsvr", true);
        }
        let first = self.members.first().context("a replica set needs a member")?;
        first.command("admin", doc! { "replSetInitiate": config }).await?;
        self.wait_until_complete().await
    }

    /// Waits until one member is primary and all others are secondaries.
    ///
    /// # Errors
    /// When that does not come within a minute.
    pub async fn wait_until_complete(&self) -> Result<()> {
        eventually_within(
            READY_LIMIT,
            &format!("{} has a primary and only secondaries beside it", self.name),
            || async {
                let mut primaries = 0;
                for member in &self.members {
                    if member.is_primary().await {
                        primaries += 1;
                    } else if !member.is_secondary().await {
                        return false;
                    }
                }
                primaries == 1
            },
        )
        .await
    }

    /// The set's name, which for a shard is also its id.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// All members, running or not.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// One member.
    ///
    /// # Errors
    /// When there are fewer.
    pub fn member(&self, index: usize) -> Result<&Member> {
        self.members.get(index).with_context(|| format!("{} has no member {index}", self.name))
    }

    /// `name/host:port,host:port`, as `--configdb` and `addShard` take it.
    #[must_use]
    pub fn connection_string(&self) -> String {
        let hosts: Vec<String> = self.members.iter().map(Member::address).collect();
        format!("{}/{}", self.name, hosts.join(","))
    }

    /// The primary; waits for an election.
    ///
    /// # Errors
    /// When there is none for a minute.
    pub async fn primary(&self) -> Result<&Member> {
        // With one member there is nothing to search, and asking would not work while it is paused.
        if let [only] = self.members.as_slice() {
            return Ok(only);
        }
        let found = parking_lot::Mutex::new(None);
        eventually_within(READY_LIMIT, &format!("{} has a primary", self.name), || async {
            for member in &self.members {
                if member.pid().is_ok() && member.is_primary().await {
                    *found.lock() = Some(member);
                    return true;
                }
            }
            false
        })
        .await?;
        let member = *found.lock();
        member.context("no primary")
    }

    /// Makes the primary step down and waits until another one has been elected.
    ///
    /// # Errors
    /// When the set has one member, or when no election follows.
    pub async fn step_down(&self) -> Result<&Member> {
        let old = self.primary().await?;
        old.command("admin", doc! { "replSetStepDown": 20, "secondaryCatchUpPeriodSecs": 10, "force": true })
            .await?;
        eventually_within(READY_LIMIT, "another primary", || async {
            for member in &self.members {
                if member.name() != old.name() && member.is_primary().await {
                    return true;
                }
            }
            false
        })
        .await?;
        self.primary().await
    }

    /// Sets how long members wait for a silent primary before they elect another one.
    ///
    /// # Errors
    /// When the primary refuses.
    pub async fn set_election_timeout(&self, limit: Duration) -> Result<()> {
        let primary = self.primary().await?;
        let reply = primary.command("admin", doc! { "replSetGetConfig": 1 }).await?;
        let mut config = reply.get_document("config").context("config")?.clone();
        let version = config.get_i32("version")?;
        config.insert("version", version + 1);
        let millis = i32::try_from(limit.as_millis())?;
        config.get_document_mut("settings")?.insert("electionTimeoutMillis", millis);
        primary.command("admin", doc! { "replSetReconfig": config }).await?;
        Ok(())
    }

    /// Has a running member other than `old` elected now, without waiting for the members to miss it.
    ///
    /// # Errors
    /// When nobody else is elected within a minute.
    pub async fn elect_another_than(&self, old: &Member) -> Result<&Member> {
        let found = parking_lot::Mutex::new(None);
        eventually_within(READY_LIMIT, &format!("another primary of {}", self.name), || async {
            for member in self.members.iter().filter(|member| member.name() != old.name()) {
                // One that is behind gets no votes: then the next one is asked.
                if member.is_primary().await
                    || (member.is_secondary().await
                        && member.command("admin", doc! { "replSetStepUp": 1 }).await.is_ok())
                {
                    *found.lock() = Some(member);
                    return true;
                }
            }
            false
        })
        .await?;
        let member = *found.lock();
        member.context("no primary")
    }

    /// Runs one command on the primary.
    ///
    /// # Errors
    /// When the answer is not `ok: 1`.
    pub async fn command(&self, db: &str, command: Document) -> Result<Document> {
        self.primary().await?.command(db, command).await
    }

    /// A driver connected to this replica set, past any router.
    ///
    /// # Errors
    /// When the driver cannot be made.
    pub async fn client(&self) -> Result<Client> {
        let hosts: Vec<String> = self.members.iter().map(Member::address).collect();
        let uri = if self.members.len() == 1 {
            format!("mongodb://{}/?directConnection=true", hosts.join(","))
        } else {
            format!("mongodb://{}/?replicaSet={}", hosts.join(","), self.name)
        };
        Ok(Client::with_uri_str(uri).await?)
    }
}
