//! Runs commands in a virtual machine, over a console with a root shell.

use super::BOOT_TIMEOUT;
use crate::command::ExitOutput;
use anyhow::{Context, Result, bail};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long to wait for the shell before trying again.
const PROBE_INTERVAL: Duration = Duration::from_secs(2);

/// How long to wait for the reply of a machine that shuts down.
const SHUTDOWN_REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs a script in the shell on a console.
pub(super) fn run(console: &Path, script: &str) -> Result<ExitOutput> {
    let output = send(&mut open(console)?, script, BOOT_TIMEOUT)?;
    output.context("no answer on the console to a script")
}

/// Runs a script that takes the machine down: the shell may be gone before it replies.
pub(super) fn run_last(console: &Path, script: &str) -> Result<()> {
    match send(&mut open(console)?, script, SHUTDOWN_REPLY_TIMEOUT) {
        Ok(Some(output)) if !output.succeeded() => bail!("{script}: {output:?}"),
        _ => Ok(()),
    }
}

/// Opens the console and waits for the shell.
fn open(console: &Path) -> Result<UnixStream> {
    let mut stream = UnixStream::connect(console).context("the machine has no console")?;
    stream.set_read_timeout(Some(Duration::from_millis(200)))?;
    // Input from before the shell reads may be lost, so the script is sent only after the shell has replied.
    let start = Instant::now();
    while send_line(&mut stream, "echo \"<probe:$((40 + 2))::>\"\n", "probe", PROBE_INTERVAL)?
        .is_none()
    {
        if start.elapsed() > BOOT_TIMEOUT {
            bail!("no shell answers on the console");
        }
    }
    Ok(stream)
}

/// Sends a script and waits for its reply.
fn send(stream: &mut UnixStream, script: &str, limit: Duration) -> Result<Option<ExitOutput>> {
    // Base64 in both directions: the terminal would change or interpret everything else.
    let script = BASE64_STANDARD.encode(script);
    let line = format!(
        "echo {script} | base64 -d >/run/i; sh -e /run/i >/run/o 2>/run/e </dev/null; c=$?; \
         echo \"<run:$c:$(base64 -w0 /run/o):$(base64 -w0 /run/e)>\"\n"
    );
    send_line(stream, &line, "run", limit)
}

/// Sends a line and waits for a reply with a marker.
fn send_line(
    stream: &mut UnixStream,
    line: &str,
    marker: &str,
    limit: Duration,
) -> Result<Option<ExitOutput>> {
    stream.write_all(line.as_bytes())?;
    let (start, mut received, mut buffer) = (Instant::now(), Vec::new(), [0; 4096]);
    while start.elapsed() < limit {
        match stream.read(&mut buffer) {
            Ok(0) => bail!("the console is closed"),
            Ok(count) => received.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error).context("read the console"),
        }
        if let Some(output) = parse(&String::from_utf8_lossy(&received), marker) {
            return Ok(Some(output));
        }
    }
    Ok(None)
}

/// Finds `<word:code:stdout:stderr>`. The echo of the command itself has no number there.
fn parse(received: &str, marker: &str) -> Option<ExitOutput> {
    let text = |part: &str| {
        let bytes = BASE64_STANDARD.decode(part).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    };
    received.split('<').skip(1).find_map(|rest| {
        let mut parts = rest.split_once('>')?.0.split(':');
        parts.next().filter(|found| *found == marker)?;
        let code = parts.next()?.parse().ok()?;
        Some(ExitOutput { code, stdout: text(parts.next()?)?, stderr: text(parts.next()?)? })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reply_is_distinguished_from_the_echo() {
        let received =
            "echo \"<run:$c:$(base64 -w0 /run/o):x>\"\r\n<probe:42::>\r\n<run:3:aGk=:>\r\n";
        let output = parse(received, "run").unwrap();
        assert_eq!((output.code, output.stdout.as_str()), (3, "hi"));
        assert_eq!(parse("<run:3:aGk", "run"), None);
    }
}
