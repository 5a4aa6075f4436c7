//! Starts a backup of a running hub. Every backup contains all Secrets, so each one is in the audit log.
//!
//! Called by the endpoint `/machinist/v1/backup` and by the daily backup of `machinist up`; both have authorized it.

use std::net::IpAddr;

use tokio::io::DuplexStream;

use crate::audit::AuditEvent;
use crate::auth::UserInfo;
use crate::hub::{Hub, now_rfc3339};

/// How much of a backup is buffered for a slow reader.
const BUFFER_BYTES: usize = 256 * 1024;

impl Hub {
    /// Starts a backup. The reader gets it as a stream; if the stream ends early, its checksum is missing.
    ///
    /// The audit log gets its line before the first byte leaves: a reader that breaks off has Secrets, too.
    #[must_use]
    pub fn start_backup(&self, user: &UserInfo, source_ip: Option<IpAddr>) -> DuplexStream {
        self.inner.audit.log(&AuditEvent {
            time: &now_rfc3339(),
            user: &user.user,
            groups: &user.groups,
            impersonated_user: None,
            source_ip,
            verb: "get",
            group: "machinist",
            resource: "backup",
            namespace: None,
            name: None,
            dry_run: false,
            includes_secrets: true,
            code: 200,
        });
        let (reader, mut writer) = tokio::io::duplex(BUFFER_BYTES);
        let (store, stop, user) =
            (self.inner.store.clone(), self.cancellation_token(), user.user.clone());
        self.inner.tasks.spawn(async move {
            tokio::select! {
                done = store.backup(&mut writer) => match done {
                    Ok(info) => tracing::info!(user, entries = info.entries, bytes = info.bytes, "backup sent"),
                    Err(error) => tracing::warn!(%error, user, "backup failed"),
                },
                () = stop.cancelled() => tracing::warn!(user, "backup aborted because the hub is stopping"),
            }
        });
        reader
    }
}
