//! Enrolment: how a machine gets a certificate for its own key, and what its first config must
//! contain for that.
//!
//! The machine creates a key and requests a certificate. The API server stores the request. A
//! provisioning token or an administrator approves it, and the certificate then gives access to the
//! sealed half of one pool's config.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use k8s_openapi::ByteString;
use serde::{Deserialize, Serialize};

use super::files;
use super::seal::AnnotatedPaths;
use crate::ignition::Config;
use crate::ignition::schema::Unit;

/// The label of the Secrets that store requests; its value is the state of the request.
pub const ENROLMENT_LABEL: &str = "machinist.dev/enrolment";
/// The type of these Secrets.
pub const SECRET_TYPE: &str = "machinist.dev/enrolment";
/// The prefix of the names of these Secrets; the id follows.
pub const SECRET_PREFIX: &str = "enrolment-";
/// The Secret with the CA that signs the certificates.
pub const ENROLMENT_CA_SECRET: &str = "machine-config-server-enrolment-ca";
/// The file with the server and pool to enrol with.
pub const INSTRUCTIONS_FILE: &str = "/etc/machinist/enrol.json";
/// The file with the CA certificates to trust.
pub const CA_FILE: &str = "/etc/machinist/enrol-ca.crt";
/// The file with a provisioning token, if whoever writes the pointer config puts one there.
pub const TOKEN_FILE: &str = "/etc/machinist/enrol-token";
/// Exists once the machine is enrolled.
pub const DONE_FILE: &str = "/etc/machinist/enrolled";
/// The machine's private key.
pub const KEY_FILE: &str = "/etc/machinist/enrol.key";
/// The directory of these files.
pub const ENROLMENT_DIR: &str = "/etc/machinist";
/// All files that an enrolment leaves on a machine, except those of the sealed half.
pub const ENROLMENT_FILES: [&str; 5] =
    [INSTRUCTIONS_FILE, CA_FILE, TOKEN_FILE, KEY_FILE, DONE_FILE];
/// The unit that enrols the machine.
pub const ENROLMENT_UNIT: &str = "machinist-enrol.service";
/// The link in the unit directory that enables the unit.
pub const ENROLMENT_UNIT_LINK: &str = "multi-user.target.wants/machinist-enrol.service";
/// At most this many requests may wait for approval. A further one replaces the oldest, so that nobody can
/// block the others: a machine repeats its request as long as it runs.
pub const MAX_PENDING: usize = 1000;
/// At most this many requests from one address may wait.
pub const MAX_PENDING_PER_ADDRESS: usize = 50;
/// A request that waits longer than this is removed. A machine that still runs requests again.
pub const PENDING_LIFETIME_SECONDS: i64 = 3600;

const USER_PREFIX: &str = "machinist:enrolled:";
const GROUP_PREFIX: &str = "machinist:pool:";
/// Everything that needs the sealed half waits for this unit.
const UNIT_TEXT: &str = "[Unit]
Description=Enrol this machine and fetch the sealed half of its config
ConditionPathExists=!/etc/machinist/enrolled
Wants=network-online.target
After=network-online.target
Before=machine-config-daemon-pull.service machine-config-daemon-firstboot.service
Before=kubelet-dependencies.target crio.service kubelet.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/bin/env machinist enrol
Restart=on-failure
RestartSec=10

[Install]
WantedBy=multi-user.target
";

/// How the halves of a pool's config are reunited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealingConfig {
    /// The pool.
    pub pool: String,
    /// The URL of the server.
    pub url: String,
    /// The CA certificates that machines trust the server with, as PEM.
    pub ca_bundle: String,
    /// Paths that annotations name.
    pub paths: AnnotatedPaths,
}

/// The content of [`INSTRUCTIONS_FILE`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EnrolInstructions {
    /// The URL of the server.
    pub server: String,
    /// The machine's pool.
    pub pool: String,
    /// The index of the machine's etcd member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd_index: Option<u16>,
}

/// Adds the files and the unit with which a machine fetches the sealed half.
pub(super) fn add_enrolment(config: &mut Config, sealing: &SealingConfig, etcd_index: Option<u16>) {
    let (server, pool) = (sealing.url.clone(), sealing.pool.clone());
    let instructions = EnrolInstructions { server, pool, etcd_index };
    let instructions = serde_json::to_vec(&instructions).unwrap_or_default();
    files::add_file(config, INSTRUCTIONS_FILE, &instructions);
    files::add_file(config, CA_FILE, sealing.ca_bundle.as_bytes());
    config.systemd.units.push(Unit {
        name: ENROLMENT_UNIT.to_owned(),
        enabled: Some(true),
        contents: Some(UNIT_TEXT.to_owned()),
        ..Unit::default()
    });
}

/// The user and the group in a machine's certificate: its key, and its pool.
#[must_use]
pub fn subject(pool: &str, id: &str) -> (String, String) {
    (format!("{USER_PREFIX}{id}"), format!("{GROUP_PREFIX}{pool}"))
}

/// The id in a certificate, if the certificate is for this pool.
#[must_use]
pub fn id_for_pool<'a>(user: &'a str, groups: &[String], pool: &str) -> Option<&'a str> {
    let id = user.strip_prefix(USER_PREFIX)?;
    groups.iter().any(|group| group.strip_prefix(GROUP_PREFIX) == Some(pool)).then_some(id)
}

/// The state of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnrolmentState {
    /// The request waits for an administrator.
    Pending,
    /// The machine may have its certificate.
    Approved,
    /// The request was denied.
    Denied,
}

impl EnrolmentState {
    /// The value of the label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Denied => "denied",
        }
    }

    /// Parses the value of the label. An unknown value counts as pending, so that it admits nobody.
    #[must_use]
    pub fn parse(word: &str) -> Self {
        match word {
            "approved" => Self::Approved,
            "denied" => Self::Denied,
            _ => Self::Pending,
        }
    }
}

/// The stored form of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnrolmentRecord {
    /// Its id: the hash of the machine's key.
    pub id: String,
    /// The pool.
    pub pool: String,
    /// The name that the machine gave itself. Not verified.
    pub name: String,
    /// The IP address that the request came from.
    pub address: String,
    /// The id of the token that approved it; empty if an administrator did.
    pub token: String,
    /// The state of the request.
    pub state: EnrolmentState,
}

impl EnrolmentRecord {
    /// The data of the Secret that stores it; the state is in the label.
    #[must_use]
    pub fn to_secret_data(&self) -> BTreeMap<String, ByteString> {
        let fields = [
            ("pool", &self.pool),
            ("name", &self.name),
            ("address", &self.address),
            ("token", &self.token),
        ];
        fields.map(|(name, text)| (name.to_owned(), ByteString(text.clone().into()))).into()
    }

    /// Reads a Secret.
    #[must_use]
    pub fn from_secret(
        name: &str,
        label: &str,
        data: &BTreeMap<String, ByteString>,
    ) -> Option<Self> {
        let text = |name: &str| {
            let bytes = data.get(name).map(|bytes| bytes.0.as_slice()).unwrap_or_default();
            str::from_utf8(bytes).ok().map(str::to_owned)
        };
        Some(Self {
            id: name.strip_prefix(SECRET_PREFIX)?.to_owned(),
            pool: text("pool")?,
            name: text("name")?,
            address: text("address")?,
            token: text("token")?,
            state: EnrolmentState::parse(label),
        })
    }
}

/// What to do with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnrolmentStep {
    /// Issue the certificate.
    Sign,
    /// Approve: record the approval before issuing the certificate.
    Approve,
    /// Record the request, which then waits.
    RecordPending,
    /// Remove the oldest waiting request, and record this one.
    ReplaceOldest,
    /// The request keeps waiting.
    Wait,
    /// Refuse.
    Deny,
    /// Refuse: too many requests from this address are waiting.
    TooManyPending,
    /// Refuse: nobody can approve it, so a token is needed.
    NeedsToken,
}

/// What is known when a request arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EnrolmentFacts {
    /// The state of this key's request for this pool, if there is one.
    pub state: Option<EnrolmentState>,
    /// Whether a valid token came with it.
    pub has_token: bool,
    /// Whether an administrator can approve it later.
    pub can_wait: bool,
    /// How many other requests are waiting.
    pub waiting: usize,
    /// How many of them come from the same address.
    pub waiting_here: usize,
}

/// A request that waits for approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingRequest {
    /// Its id.
    pub id: String,
    /// The address that it came from.
    pub address: String,
    /// When it arrived, in seconds since 1970.
    pub since: i64,
}

/// The waiting requests, and those that have waited too long.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PendingRequests {
    /// They wait. The oldest is first.
    pub waiting: Vec<PendingRequest>,
    /// They are removed.
    pub expired: Vec<PendingRequest>,
}

impl PendingRequests {
    /// Sorts requests by age.
    #[must_use]
    pub fn new(mut all: Vec<PendingRequest>, now: i64) -> Self {
        all.sort_by(|a, b| (a.since, &a.id).cmp(&(b.since, &b.id)));
        let (expired, waiting) = all
            .into_iter()
            .partition(|request| now.saturating_sub(request.since) > PENDING_LIFETIME_SECONDS);
        Self { waiting, expired }
    }

    /// How many requests from an address wait.
    #[must_use]
    pub fn count_from(&self, address: IpAddr) -> usize {
        let block = address_block(address);
        let is_from = |request: &&PendingRequest| {
            request.address.parse().is_ok_and(|address| address_block(address) == block)
        };
        self.waiting.iter().filter(is_from).count()
    }
}

/// What counts as one address: a host has one IPv4 address, and as many IPv6 addresses of its network as it
/// wants.
#[must_use]
pub fn address_block(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

/// Decides on a request.
#[must_use]
pub fn decide_enrolment(facts: EnrolmentFacts) -> EnrolmentStep {
    match facts.state {
        Some(EnrolmentState::Denied) => EnrolmentStep::Deny,
        Some(EnrolmentState::Approved) => EnrolmentStep::Sign,
        _ if facts.has_token => EnrolmentStep::Approve,
        _ if !facts.can_wait => EnrolmentStep::NeedsToken,
        Some(EnrolmentState::Pending) => EnrolmentStep::Wait,
        None if facts.waiting_here >= MAX_PENDING_PER_ADDRESS => EnrolmentStep::TooManyPending,
        None if facts.waiting >= MAX_PENDING => EnrolmentStep::ReplaceOldest,
        None => EnrolmentStep::RecordPending,
    }
}

#[cfg(test)]
mod tests;
