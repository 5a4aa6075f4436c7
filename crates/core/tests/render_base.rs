//! Which OS image a pool runs: annotation, stream, ControllerConfig, and which of them exclude each
//! other.
use machinist_core::api::{ControllerConfig, MachineConfig, MachineConfigPool, OSImageStream};
use machinist_core::reconcile_check::ValidationOverrides;
use machinist_core::render::provenance::provenance;
use machinist_core::render::reconcile::{RenderInputs, reconcile};
use machinist_core::render::{ImageSources, render};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const GROUP: &str = "machineconfiguration.openshift.io/v1";
const ANNOTATION: &str = "machinist.dev/os-image";

fn object<K: DeserializeOwned>(kind: &str, metadata: &Value, spec: &Value) -> K {
    let object = json!({"apiVersion": GROUP, "kind": kind, "metadata": metadata, "spec": spec});
    serde_json::from_value(object).unwrap()
}

/// A pool, the stream that it follows, and the image in its annotation.
fn pool(name: &str, stream: Option<&str>, image: Option<&str>) -> MachineConfigPool {
    let mut spec = json!({"machineConfigSelector": {"matchLabels": {"for": "all"}}});
    if let Some(stream) = stream {
        spec["osImageStream"] = json!({"name": stream});
    }
    let mut metadata = json!({"name": name, "uid": name});
    if let Some(image) = image {
        metadata["annotations"] = json!({ANNOTATION: image});
    }
    object("MachineConfigPool", &metadata, &spec)
}

fn config(name: &str, spec: &Value) -> MachineConfig {
    object("MachineConfig", &json!({"name": name, "labels": {"for": "all"}}), spec)
}

fn controller_config() -> ControllerConfig {
    let metadata = json!({"name": "machine-config-controller"});
    let spec =
        json!({"baseOSContainerImage": "q.io/cc", "baseOSExtensionsContainerImage": "q.io/cc-x"});
    object("ControllerConfig", &metadata, &spec)
}

fn streams(wish: &str, default: &str) -> OSImageStream {
    let mut streams: OSImageStream =
        object("OSImageStream", &json!({"name": "cluster"}), &json!({"defaultStream": wish}));
    let one = |name: &str| json!({"name": name, "osImage": format!("q.io/{name}"), "osExtensionsImage": format!("q.io/{name}-x")});
    let status = json!({"defaultStream": default, "availableStreams": [one("nine"), one("ten")]});
    streams.status = serde_json::from_value(status).unwrap();
    streams
}

/// The images of a pool, or why it has none.
fn images(
    pool: &MachineConfigPool,
    worker: Option<&MachineConfigPool>,
    streams: Option<&OSImageStream>,
    configs: &[MachineConfig],
) -> Result<(String, String, bool), String> {
    let facts = controller_config();
    let system = ImageSources { controller_config: Some(&facts), streams, worker };
    let made = render(pool, configs, system).map_err(|error| error.to_string())?;
    let spec = made.spec;
    Ok((spec.os_image_url, spec.base_os_extensions_container_image, made.os_image_overridden))
}

#[test]
fn the_image_of_a_pool_comes_from_annotation_stream_or_controller_config() {
    let (nine, begun) = (streams("nine", "nine"), {
        let mut begun = streams("nine", "nine");
        begun.status = None;
        begun
    });
    let (moved, gone) = (streams("ten", "nine"), streams("gone", "nine"));
    let plain = [config("50-a", &json!({"kernelArguments": ["a"]}))];
    let own = [config("50-a", &json!({"osImageURL": "q.io/own"}))];
    let worker = |stream, image| pool("worker", stream, image);
    type Case<'a> = (
        &'a str,
        MachineConfigPool,
        Option<MachineConfigPool>,
        Option<&'a OSImageStream>,
        &'a [MachineConfig],
        (&'a str, &'a str, bool),
    );
    let cases: Vec<Case<'_>> = vec![
        (
            "nobody names a stream",
            worker(None, None),
            None,
            None,
            &plain,
            ("q.io/cc", "q.io/cc-x", false),
        ),
        (
            "an object without status",
            worker(None, None),
            None,
            Some(&begun),
            &plain,
            ("q.io/cc", "q.io/cc-x", false),
        ),
        (
            "the default stream",
            worker(None, None),
            None,
            Some(&nine),
            &plain,
            ("q.io/nine", "q.io/nine-x", false),
        ),
        (
            "the wish counts",
            worker(None, None),
            None,
            Some(&moved),
            &plain,
            ("q.io/ten", "q.io/ten-x", false),
        ),
        (
            "a wish for none there is",
            worker(None, None),
            None,
            Some(&gone),
            &plain,
            ("q.io/nine", "q.io/nine-x", false),
        ),
        (
            "its own stream",
            worker(Some("ten"), None),
            None,
            Some(&nine),
            &plain,
            ("q.io/ten", "q.io/ten-x", false),
        ),
        (
            "the worker's stream",
            pool("infra", None, None),
            Some(worker(Some("ten"), None)),
            Some(&nine),
            &plain,
            ("q.io/ten", "q.io/ten-x", false),
        ),
        (
            "not for the control plane",
            pool("master", None, None),
            Some(worker(Some("ten"), None)),
            Some(&nine),
            &plain,
            ("q.io/nine", "q.io/nine-x", false),
        ),
        (
            "its own before the worker's",
            pool("infra", Some("nine"), None),
            Some(worker(Some("ten"), None)),
            Some(&nine),
            &plain,
            ("q.io/nine", "q.io/nine-x", false),
        ),
        (
            "a MachineConfig over the default",
            worker(None, None),
            None,
            Some(&nine),
            &own,
            ("q.io/own", "q.io/nine-x", true),
        ),
        (
            "a MachineConfig over the worker's",
            pool("infra", None, None),
            Some(worker(Some("ten"), None)),
            Some(&nine),
            &own,
            ("q.io/own", "q.io/ten-x", true),
        ),
        (
            "the annotation",
            worker(None, Some("q.io/a:1")),
            None,
            None,
            &plain,
            ("q.io/a:1", "q.io/cc-x", true),
        ),
        (
            "the annotation over the default",
            worker(None, Some("q.io/a:1")),
            None,
            Some(&nine),
            &plain,
            ("q.io/a:1", "q.io/nine-x", true),
        ),
        (
            "the worker's annotation",
            pool("infra", None, None),
            Some(worker(None, Some("q.io/a:1"))),
            None,
            &plain,
            ("q.io/a:1", "q.io/cc-x", true),
        ),
        (
            "not for the control plane either",
            pool("master", None, None),
            Some(worker(None, Some("q.io/a:1"))),
            None,
            &plain,
            ("q.io/cc", "q.io/cc-x", false),
        ),
        (
            "its own stream before the worker's annotation",
            pool("infra", Some("ten"), None),
            Some(worker(None, Some("q.io/a:1"))),
            Some(&nine),
            &plain,
            ("q.io/ten", "q.io/ten-x", false),
        ),
        (
            "its own annotation before the worker's stream",
            pool("infra", None, Some("q.io/b:1")),
            Some(worker(Some("ten"), None)),
            Some(&nine),
            &plain,
            ("q.io/b:1", "q.io/ten-x", true),
        ),
        (
            "a MachineConfig over the worker's annotation",
            pool("infra", None, None),
            Some(worker(None, Some("q.io/a:1"))),
            None,
            &own,
            ("q.io/own", "q.io/cc-x", true),
        ),
        (
            "both say the same",
            worker(None, Some("q.io/own")),
            None,
            None,
            &own,
            ("q.io/own", "q.io/cc-x", true),
        ),
    ];
    for (what, pool, worker, streams, configs, (image, extensions, overridden)) in cases {
        let found = images(&pool, worker.as_ref(), streams, configs).unwrap();
        assert_eq!(found, (image.to_owned(), extensions.to_owned(), overridden), "{what}");
    }
}

#[test]
fn errors_name_the_object_and_the_remedy() {
    let nine = streams("nine", "nine");
    let plain = [config("50-a", &json!({"kernelArguments": ["a"]}))];
    let own = [config("50-a", &json!({"osImageURL": "q.io/own"}))];
    let infra = pool("infra", None, None);
    let bad_worker = pool("worker", None, Some("fedora"));
    let cases = [
        (
            images(&pool("worker", Some("ten"), None), None, None, &plain),
            "could not get OSImageStream for pool worker: osimagestream.machineconfiguration.openshift.io \"cluster\" not found (create it",
        ),
        (
            images(&pool("worker", Some("eight"), None), None, Some(&nine), &plain),
            "could not get OSImageStreamSet for pool worker: osimagestreams.machineconfiguration.openshift.io \"eight\" not found (streams there: nine, ten; name one",
        ),
        (
            images(&infra, Some(&pool("worker", Some("eight"), None)), Some(&nine), &plain),
            "could not get OSImageStreamSet for pool infra: ",
        ),
        (
            images(&pool("worker", Some("ten"), None), None, Some(&nine), &own),
            "cannot override MachineConfig osImageURL and set MachineConfigPool spec.osImageStream.name simultaneously (osImageURL from MachineConfig 50-a; remove one",
        ),
        (
            images(&pool("worker", None, Some("q.io/a:1")), None, None, &own),
            "cannot override MachineConfig osImageURL and set MachineConfigPool annotation machinist.dev/os-image simultaneously (osImageURL from MachineConfig 50-a, annotation of MachineConfigPool worker; remove one",
        ),
        (
            images(&pool("worker", Some("ten"), Some("q.io/a:1")), None, Some(&nine), &plain),
            "cannot set MachineConfigPool annotation machinist.dev/os-image and MachineConfigPool spec.osImageStream.name simultaneously (MachineConfigPool worker, stream ten; remove one",
        ),
        (
            images(&infra, Some(&bad_worker), None, &plain),
            "MachineConfigPool worker: metadata.annotations: machinist.dev/os-image: \"fedora\": it names no registry (write REGISTRY/NAME@sha256:DIGEST or",
        ),
        (
            images(&pool("worker", None, Some("")), None, None, &plain),
            "MachineConfigPool worker: metadata.annotations: machinist.dev/os-image: \"\": it is empty (write",
        ),
    ];
    for (found, expected) in cases {
        let error = found.unwrap_err();
        assert!(error.starts_with(expected), "{error}\n{expected}");
    }
}

/// Errors about the OSImageStream are reported unchanged, all others with their origin.
#[test]
fn errors_name_their_origin() {
    let configs = [config("50-a", &json!({"kernelArguments": ["a"]}))];
    let configs: Vec<&MachineConfig> = configs.iter().collect();
    for (pool, begins) in [
        (pool("worker", Some("ten"), None), "could not get OSImageStream for pool worker: "),
        (
            pool("worker", None, Some("x")),
            "could not generate rendered MachineConfig: MachineConfigPool worker: ",
        ),
    ] {
        let inputs = RenderInputs {
            pool: &pool,
            machine_configs: &configs,
            system: ImageSources::default(),
            version: "v",
            overrides: ValidationOverrides::default(),
        };
        let error = reconcile(&inputs).unwrap_err().to_string();
        assert!(error.starts_with(begins), "{error}");
    }
}

#[test]
fn the_source_of_the_image_is_reported() {
    let (facts, nine) = (controller_config(), streams("nine", "nine"));
    let worker = pool("worker", None, Some("q.io/a:1"));
    let system =
        ImageSources { controller_config: Some(&facts), streams: Some(&nine), worker: None };
    let configs = [config("50-a", &json!({"kernelArguments": ["a"]}))];
    let made = render(&worker, &configs, system).unwrap();
    let items = provenance(&made, Some("machine-config-controller"));
    let who = |field: &str| -> Vec<String> {
        let item = items.iter().find(|item| item.name == field).unwrap();
        item.contributions.iter().map(|it| it.source.clone()).collect()
    };
    let system =
        ["ControllerConfig machine-config-controller", "OSImageStream cluster, stream nine"];
    assert_eq!(who("baseOSExtensionsContainerImage"), system);
    let annotation = "MachineConfigPool worker, annotation machinist.dev/os-image";
    assert_eq!(who("osImageURL"), [&system[..], &[annotation]].concat());
}
