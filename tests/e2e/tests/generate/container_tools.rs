//! Debian's container tools read what we generate: they find mirrors, refuse blocked sources, require signatures, and
//! use the configured storage.

use base64::Engine as _;
use machinist_e2e::{ContainerImage, ImageRegistry, Lab, binary, cache, command, environment};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The files generated for workers, and the tools that read them.
struct GeneratedFiles {
    files: PathBuf,
    out: PathBuf,
}

impl GeneratedFiles {
    fn new(dir: &Path, objects: &[Value]) -> Self {
        let input = dir.join("objects.json");
        fs::write(
            &input,
            json!({"kind": "List", "apiVersion": "v1", "items": objects}).to_string(),
        )
        .unwrap();
        let out = dir.join("generated");
        let mut machinist = Command::new(binary::machinist_binary().unwrap());
        machinist.args(["generate", "--pool", "worker", "-f"]).arg(&input).arg("-o").arg(&out);
        command::run(machinist.current_dir(cache::source_root())).unwrap();
        let files = out.join("99-worker-generated-registries/files/etc/containers");
        Self { files, out }
    }

    /// podman with the generated container and image settings.
    fn podman(&self) -> Command {
        let storage = "99-worker-generated-containerruntime/files/etc/containers/storage.conf";
        let mut podman = Command::new(environment::find_tool("podman").unwrap());
        podman.env("CONTAINERS_STORAGE_CONF", self.out.join(storage));
        podman.env("CONTAINERS_REGISTRIES_CONF", self.files.join("registries.conf"));
        podman.env("CONTAINERS_REGISTRIES_CONF_DIR", "/nonexistent");
        podman
    }

    fn skopeo(&self) -> Command {
        let mut skopeo = Command::new(environment::find_tool("skopeo").unwrap());
        skopeo.arg("--registries-conf").arg(self.files.join("registries.conf"));
        skopeo.env("CONTAINERS_REGISTRIES_CONF_DIR", "/nonexistent");
        skopeo
    }

    /// The digest of an image, from whichever source is used.
    fn digest(&self, image: &str) -> Result<String, String> {
        let mut skopeo = self.skopeo();
        skopeo.args([
            "inspect",
            "--no-tags",
            "--format",
            "{{.Digest}}",
            &format!("docker://{image}"),
        ]);
        run_command(&mut skopeo)
    }

    /// Copies an image under our policy.
    fn copy(&self, image: &str) -> Result<String, String> {
        let mut skopeo = self.skopeo();
        skopeo.arg("--policy").arg(self.files.join("policy.json"));
        let attachments = self.files.join("registries.d");
        if attachments.exists() {
            skopeo.arg("--registries.d").arg(attachments);
        }
        let target = self.out.join(format!("copy-{}", image.replace(['/', ':', '@'], "-")));
        skopeo.args([
            "copy",
            "--quiet",
            &format!("docker://{image}"),
            &format!("dir:{}", target.display()),
        ]);
        run_command(&mut skopeo)
    }
}

fn run_command(command: &mut Command) -> Result<String, String> {
    let output = command::output(command).unwrap();
    if output.succeeded() { Ok(output.stdout.trim().to_owned()) } else { Err(output.stderr) }
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "config.openshift.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

#[test]
fn skopeo_finds_images_at_our_mirrors_and_nowhere_else() {
    let lab = Lab::new().unwrap();
    let registry = ImageRegistry::start(&lab).unwrap();
    let host = registry.host();
    let pullspec = registry.push("mirror/app:1", &ContainerImage::busybox().unwrap()).unwrap();
    registry.push("mirror/secret:1", &ContainerImage::busybox().unwrap()).unwrap();
    let digest = pullspec.split_once('@').unwrap().1.to_owned();
    let reader = GeneratedFiles::new(
        &lab.create_dir("generated").unwrap(),
        &[
            object(
                "ImageDigestMirrorSet",
                "by-digest",
                &json!({"imageDigestMirrors": [
                    {"source": "digest.invalid/team", "mirrors": ["nobody.invalid/x", format!("{host}/mirror")],
                     "mirrorSourcePolicy": "NeverContactSource"},
                    {"source": "*.wild.invalid", "mirrors": [format!("{host}/mirror")]},
                ]}),
            ),
            object(
                "ImageTagMirrorSet",
                "by-tag",
                &json!({"imageTagMirrors": [
                    {"source": "tag.invalid/team", "mirrors": [format!("{host}/mirror")],
                     "mirrorSourcePolicy": "NeverContactSource"},
                ]}),
            ),
            object(
                "Image",
                "cluster",
                &json!({"registrySources": {
                    "insecureRegistries": [host],
                    "blockedRegistries": ["digest.invalid/team/secret"],
                }}),
            ),
        ],
    );
    assert_eq!(reader.digest(&format!("digest.invalid/team/app@{digest}")), Ok(digest.clone()));
    assert_eq!(reader.digest("tag.invalid/team/app:1"), Ok(digest.clone()));
    assert_eq!(reader.digest(&format!("a.wild.invalid/app@{digest}")), Ok(digest.clone()));
    // Not by tag where the mirror is for digests, and the source itself is never contacted.
    let by_tag = reader.digest("digest.invalid/team/app:1").unwrap_err();
    assert!(by_tag.contains("is blocked"), "{by_tag}");
    let by_digest = reader.digest(&format!("tag.invalid/team/app@{digest}")).unwrap_err();
    assert!(by_digest.contains("is blocked"), "{by_digest}");
    // A blocked source is refused by name, although a mirror could serve it.
    let refused = reader.copy(&format!("digest.invalid/team/secret@{digest}")).unwrap_err();
    assert!(refused.contains("rejected by policy"), "{refused}");
    reader.copy(&format!("digest.invalid/team/app@{digest}")).unwrap();
}

#[test]
fn skopeo_requires_the_signatures_of_our_policies() {
    let lab = Lab::new().unwrap();
    let registry = ImageRegistry::start(&lab).unwrap();
    let host = registry.host();
    for name in ["signed/app:1", "free/app:1", "other/app:1"] {
        registry.push(name, &ContainerImage::busybox().unwrap()).unwrap();
    }
    let key = "LS0tLS1CRUdJTiBQVUJMSUMgS0VZLS0tLS0KTUZrd0V3WUhLb1pJemowQ0FRWUlLb1pJemowREFRY0RRZ0FFdmkzSTVnMGtRS3JFT3ZRWWtxQ1VQU01DU0hlTwp5Rm4wa1hyVW1TZ0xGSXZUVWNEcXlXbFR4dGpDOG92NWNGRnoxV3IxY0UxeVBqVEx5dkkyRmk1RWt3PT0KLS0tLS1FTkQgUFVCTElDIEtFWS0tLS0tCg==";
    let trust = json!({"policyType": "PublicKey", "publicKey": {"keyData": key}});
    let policy = |scope: &str, identity: Value| {
        let mut policy = json!({"rootOfTrust": trust});
        if !identity.is_null() {
            policy["signedIdentity"] = identity;
        }
        json!({"scopes": [scope], "policy": policy})
    };
    let remap = json!({"matchPolicy": "RemapIdentity",
        "remapIdentity": {"prefix": format!("{host}/remapped"), "signedPrefix": "vendor.example.com"}});
    let exact = json!({"matchPolicy": "ExactRepository",
        "exactRepository": {"repository": "vendor.example.com/app"}});
    let reader = GeneratedFiles::new(
        &lab.create_dir("generated").unwrap(),
        &[
            object("ClusterImagePolicy", "signed", &policy(&format!("{host}/signed"), Value::Null)),
            object("ClusterImagePolicy", "remapped", &policy(&format!("{host}/remapped"), remap)),
            object("ClusterImagePolicy", "exact", &policy(&format!("{host}/exact"), exact)),
            object(
                "Image",
                "cluster",
                &json!({"registrySources": {
                    "insecureRegistries": [host],
                    "allowedRegistries": [format!("{host}/signed"), format!("{host}/free"),
                        format!("{host}/remapped"), format!("{host}/exact")],
                }}),
            ),
        ],
    );
    reader.copy(&format!("{host}/free/app:1")).unwrap();
    let unsigned = reader.copy(&format!("{host}/signed/app:1")).unwrap_err();
    assert!(unsigned.contains("no signature exists"), "{unsigned}");
    let other = reader.copy(&format!("{host}/other/app:1")).unwrap_err();
    assert!(other.contains("rejected by policy"), "{other}");
}

#[test]
fn podman_finds_images_where_our_mirrors_and_stores_are() {
    let lab = Lab::new().unwrap();
    let registry = ImageRegistry::start(&lab).unwrap();
    let host = registry.host();
    registry.push("mirror/app:1", &ContainerImage::busybox().unwrap()).unwrap();
    let dir = |name: &str| lab.create_dir(name).unwrap().display().to_string();
    let objects = |driver: &str, root: &str, settings: &Value| {
        let lists = json!({"registrySources": {"insecureRegistries": [host]}});
        let mirrors = json!({"imageTagMirrors": [
            {"source": "tag.invalid/team", "mirrors": [format!("{host}/mirror")]},
        ]});
        [
            storage(driver, root),
            object("Image", "cluster", &lists),
            object("ImageTagMirrorSet", "by-tag", &mirrors),
            container_runtime(settings),
        ]
    };

    // An image that is requested by the name of its source comes from the mirror.
    let shared = dir("shared");
    let nothing = json!({"additionalImageStores": [{"path": dir("nothing")}]});
    let first =
        GeneratedFiles::new(&lab.create_dir("first").unwrap(), &objects("vfs", &shared, &nothing));
    let image = "tag.invalid/team/app:1";
    run_command(first.podman().args(["pull", "--quiet", image])).unwrap();

    // Another host shares the store and pulls nothing.
    let settings = json!({"additionalImageStores": [{"path": shared}]});
    let second = GeneratedFiles::new(
        &lab.create_dir("second").unwrap(),
        &objects("vfs", &dir("own"), &settings),
    );
    let found = run_command(second.podman().args(["images", "--format", "json"])).unwrap();
    let found: Value = serde_json::from_str(&found).unwrap();
    assert_eq!(found[0]["Names"], json!([image]), "{found}");
    assert_eq!(found[0]["ReadOnly"], true, "{found}");
    let info = run_command(second.podman().args(["info", "--format", "json"])).unwrap();
    let info: Value = serde_json::from_str(&info).unwrap();
    assert_eq!(info["store"]["graphOptions"]["vfs.imagestore"], shared.as_str(), "{info}");
    let known = &info["registries"]["tag.invalid/team"];
    assert_eq!(known["Mirrors"][0]["Location"], format!("{host}/mirror"), "{known}");
    assert_eq!(known["Mirrors"][0]["PullFromMirror"], "tag-only", "{known}");

    // Where the host's file system has no quotas, podman refuses the limit and names it.
    let limit = json!({"overlaySize": "8G"});
    let third = GeneratedFiles::new(
        &lab.create_dir("third").unwrap(),
        &objects("overlay", &dir("limited"), &limit),
    );
    let output = run_command(third.podman().args(["info", "--format", "json"]));
    assert!(
        output.as_ref().unwrap_or_else(|refused| refused).contains("overlay.size"),
        "{output:?}"
    );
}

/// What a template would set as the storage of containers.
fn storage(driver: &str, root: &str) -> Value {
    let text = format!(
        "[storage]\ndriver = \"{driver}\"\nrunroot = \"{root}/run\"\ngraphroot = \"{root}\"\n"
    );
    let source = base64::engine::general_purpose::STANDARD.encode(text);
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": "00-worker", "labels": {"machineconfiguration.openshift.io/role": "worker"}},
        "spec": {"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": [
            {"path": "/etc/containers/storage.conf", "contents": {"source": format!("data:;base64,{source}")}},
        ]}}},
    })
}

fn container_runtime(settings: &Value) -> Value {
    let worker = "pools.operator.machineconfiguration.openshift.io/worker";
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "ContainerRuntimeConfig",
        "metadata": {"name": "stores"},
        "spec": {"machineConfigPoolSelector": {"matchLabels": {worker: ""}}, "containerRuntimeConfig": settings},
    })
}
