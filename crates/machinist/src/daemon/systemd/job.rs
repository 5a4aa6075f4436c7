//! A systemd job, from the request to its end.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use futures::StreamExt as _;
use serde::Serialize;
use zbus::message::Type;
use zbus::{DynamicType, MatchRule, Message, MessageStream, OwnedObjectPath};

use super::{BUS_NAME, MANAGER_INTERFACE, OBJECT_PATH, Systemd, plain_error};

/// The timeout of a job. systemd allows a unit 90 seconds unless the unit says otherwise; a restart is a
/// stop and a start.
const JOB_TIMEOUT: Duration = Duration::from_secs(600);

/// Calls a method that creates a job, and waits for the end of the job.
pub(super) async fn run<B: Serialize + DynamicType>(
    systemd: &Systemd,
    method: &str,
    body: &B,
    unit: &str,
) -> Result<()> {
    let Ok(ended) = tokio::time::timeout(JOB_TIMEOUT, wait_for_result(systemd, method, body)).await
    else {
        bail!("the job has not ended after {JOB_TIMEOUT:?}: see \"systemctl list-jobs\"");
    };
    match ended?.as_str() {
        // Skipped: there was nothing to do.
        "done" | "skipped" => Ok(()),
        result => bail!(
            "the job ended with the result {result:?}: see \"systemctl status {unit}\" and \"journalctl -xeu {unit}\""
        ),
    }
}

/// Returns the result of the job, in systemd's word for it.
async fn wait_for_result<B: Serialize + DynamicType>(
    systemd: &Systemd,
    method: &str,
    body: &B,
) -> Result<String> {
    // On the bus, only from systemd itself.
    let rule = MatchRule::builder()
        .msg_type(Type::Signal)
        .sender(BUS_NAME)
        .interface(MANAGER_INTERFACE)
        .path(OBJECT_PATH)
        .member("JobRemoved")
        .build()?;
    // Subscribed before the request: a job can end before the reply is read.
    let mut signals = MessageStream::for_match_rule(rule, &systemd.connection, None).await?;
    let mut ended: HashMap<OwnedObjectPath, String> = HashMap::new();
    let note = |signal: Option<zbus::Result<Message>>| -> Result<_> {
        let signal = signal.context("systemd has ended the connection")?.map_err(plain_error)?;
        let (_, job, _, result): (u32, OwnedObjectPath, String, String) =
            signal.body().deserialize()?;
        Ok((job, result))
    };
    let call = systemd.call(method, body);
    tokio::pin!(call);
    // Signals are read while the reply is awaited: a full queue would block the reply too.
    let answer = loop {
        tokio::select! {
            biased;
            answer = &mut call => break answer?,
            signal = signals.next() => ended.extend([note(signal)?]),
        }
    };
    let job: OwnedObjectPath = answer.body().deserialize()?;
    loop {
        if let Some(result) = ended.remove(&job) {
            return Ok(result);
        }
        ended.extend([note(signals.next().await)?]);
    }
}
