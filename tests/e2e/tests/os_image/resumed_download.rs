//! A download that is interrupted within a layer: complete layers are not fetched again, and partial ones are no
//! obstacle.

use super::fixture::{ImageFixture, machinist_os_succeeds, status, version};
use machinist_e2e::command::ExitOutput;
use machinist_e2e::{ContainerImage, Machine, TcpProxy, wait_for};
use std::process::{Child, Stdio};
use std::time::Duration;

/// This many more bytes at a time, until the first layer is complete. The second is more than twice as large.
const STEP: u64 = 4 << 20;

/// A registry behind a proxy, and a machine that knows only the proxy.
struct InterruptedFetch {
    proxy: TcpProxy,
    machine: Machine,
    image: String,
    layers: Vec<String>,
    registry: ImageFixture,
}

impl InterruptedFetch {
    fn new() -> Self {
        let fixture = ImageFixture::new();
        let wire = TcpProxy::start(&fixture.lab.address(), &fixture.registry.host()).unwrap();
        let machine = fixture.machine_with_registry(&wire.address().to_string()).boot().unwrap();
        let base = ContainerImage::system().unwrap();
        let layers = base.base_layers();
        let image =
            fixture.push("os/debian:2", &base.file("usr/lib/testkit-version", 0o644, "v2\n"));
        Self { proxy: wire, machine, image, layers, registry: fixture }
    }

    /// Starts a fetch, and stalls the proxy when the first layer has arrived and the second has not.
    fn start_fetch(&self) -> Child {
        self.proxy.stall_after(STEP);
        let mut fetch =
            self.machine.command_inside(&["machinist", "os", "fetch", &self.image]).unwrap();
        let mut fetch = fetch.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let came = self.machine.wait_within(Duration::from_secs(180), "the first layer", |_| {
            anyhow::ensure!(fetch.try_wait()?.is_none(), "it has ended by itself");
            if self.has_layer(&self.layers[0]) {
                return Ok(true);
            }
            if self.proxy.is_stalled() {
                self.proxy.stall_after(STEP);
            }
            Ok(false)
        });
        came.unwrap();
        wait_for("the wire to be still", || Ok(self.proxy.is_stalled())).unwrap();
        assert!(!self.has_layer(&self.layers[1]));
        fetch
    }

    fn download_dir(&self) -> String {
        let (_, sha256) = self.image.split_once("@sha256:").unwrap();
        format!("/var/lib/machinist/images/{sha256}")
    }

    /// Whether a layer has arrived.
    fn has_layer(&self, layer: &str) -> bool {
        let path =
            format!("{}/oci/blobs/sha256/{}", self.download_dir(), &layer["sha256:".len()..]);
        self.machine.exists(&path).unwrap()
    }

    /// The first layer was fetched once, the image can be booted, and nothing is left of the download.
    fn assert_complete(&self) {
        assert_eq!(self.registry.registry.fetch_count(&self.layers[0]).unwrap(), 1);
        let left = "ls -A /var/lib/machinist/images; ls -A /var/tmp | grep container || true";
        assert_eq!(self.machine.sh(left).unwrap(), "");
        machinist_os_succeeds(&self.machine, &["stage", "--image", &self.image]);
        self.machine.reboot().unwrap();
        assert_eq!(version(&self.machine), "v2");
    }
}

fn ended(child: Child) -> ExitOutput {
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let code = output.status.code().unwrap_or(-1);
    ExitOutput { code, stdout: text(output.stdout), stderr: text(output.stderr) }
}

#[test]
fn a_killed_fetch_resumes_after_the_last_complete_layer() {
    let download = InterruptedFetch::new();
    let machine = &download.machine;
    let before = status(machine);
    let fetch = download.start_fetch();
    machine.sh("pkill -KILL -x skopeo").unwrap();
    let output = ended(fetch);
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.stderr.contains("it was ended by signal 9"), "{output:?}");
    download.proxy.disconnect_all();
    download.proxy.resume();

    // The partial download is not mistaken for an image or a layer.
    assert_eq!(status(machine), before);
    assert!(!machine.exists(&format!("{}/oci/index.json", download.download_dir())).unwrap());
    assert!(!download.has_layer(&download.layers[1]));
    let half = format!("ls {}/oci/oci-put-blob*", download.download_dir());
    assert!(machine.sh(&half).is_ok(), "half a layer is there");

    // The remains of another download are removed before anything new takes space.
    machine.sh("mkdir -p /var/lib/machinist/images/abandoned/oci").unwrap();
    machinist_os_succeeds(machine, &["fetch", &download.image]);
    download.assert_complete();
}

#[test]
fn a_connection_cut_within_a_layer_is_retried() {
    let download = InterruptedFetch::new();
    let before = status(&download.machine);
    let fetch = download.start_fetch();
    download.proxy.disconnect_all();
    download.proxy.resume();
    let output = ended(fetch);
    assert_eq!(output.code, 0, "{output:?}");
    assert_eq!(status(&download.machine), before);
    download.assert_complete();
}
