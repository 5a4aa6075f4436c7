//! Complete responses of the machine config server, and the example of MCO's design document.
use machinist_core::api::{ControllerConfig, MachineConfig};
use machinist_core::ignition::{IgnitionVersion, data_url};
use machinist_core::serve::{
    ConfigHalf, ConfigRequest, ServeError, ServeInputs, ServeMode, ServerRoute, assemble,
    etcd_index, provisioning_token, route, served_version,
};
use serde_json::{Value, json};

const VERSIONS: [(i64, i64); 6] = [(2, 2), (3, 1), (3, 2), (3, 3), (3, 4), (3, 5)];
const CLOUD_CA: &str = "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem";

fn machine_config(spec: Value) -> MachineConfig {
    let object = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {"name": "rendered-worker-1"},
        "spec": spec,
    });
    serde_json::from_value(object).unwrap()
}

fn controller_config(spec: Value) -> ControllerConfig {
    let object = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "ControllerConfig",
        "metadata": {"name": "machine-config-controller"},
        "spec": spec,
    });
    serde_json::from_value(object).unwrap()
}

fn inputs(machine_config: &MachineConfig) -> ServeInputs<'_> {
    ServeInputs {
        machine_config,
        controller_config: None,
        kubeconfig: b"clusters: []\n",
        image: None,
        certificates: &[],
        mode: ServeMode::Cluster,
        sealing: None,
        first_boot: None,
    }
}

fn asked(major: i64, minor: i64) -> ConfigRequest {
    ConfigRequest {
        version: IgnitionVersion::new(major, minor),
        etcd_index: None,
        half: ConfigHalf::Public,
    }
}

fn answer(inputs: &ServeInputs<'_>, asked: &ConfigRequest) -> Value {
    serde_json::from_slice(&assemble(inputs, asked).unwrap()).unwrap()
}

fn files(answer: &Value) -> Vec<&Value> {
    answer["storage"]["files"].as_array().into_iter().flatten().collect()
}

fn paths(answer: &Value) -> Vec<&str> {
    files(answer).into_iter().map(|file| file["path"].as_str().unwrap()).collect()
}

fn contents(answer: &Value, path: &str) -> String {
    let file = files(answer).into_iter().find(|file| file["path"] == path).expect(path);
    let source = file["contents"]["source"].as_str().unwrap();
    String::from_utf8(data_url::decode(source).unwrap()).unwrap()
}

fn empty_config() -> MachineConfig {
    machine_config(json!({"config": {"ignition": {"version": "3.5.0"}}}))
}

const NODE_ANNOTATIONS: &str = "/etc/machine-config-daemon/node-annotations.json";
const KUBECONFIG: &str = "/etc/kubernetes/kubeconfig";
const SERVED: &str = "/etc/mcs-machine-config-content.json";
const ENCAPSULATED: &str = "/etc/ignition-machine-config-encapsulated.json";

#[test]
fn files_are_added_in_order_in_every_version() {
    let config = empty_config();
    let authorities = controller_config(json!({
        "kubeAPIServerServingCAData": "a3ViZQ==", "cloudProviderCAData": "Y2xvdWQ=",
    }));
    let certificates = [("registry:5000".to_owned(), b"PEM".to_vec())];
    for (major, minor) in VERSIONS {
        let mut inputs = inputs(&config);
        inputs.controller_config = Some(&authorities);
        inputs.certificates = &certificates;
        let answer = answer(&inputs, &asked(major, minor));
        assert_eq!(answer["ignition"]["version"], format!("{major}.{minor}.0"));
        assert_eq!(
            paths(&answer),
            [
                "/etc/kubernetes/kubelet-ca.crt",
                CLOUD_CA,
                NODE_ANNOTATIONS,
                KUBECONFIG,
                SERVED,
                "/etc/docker/certs.d/registry:5000/ca.crt",
                ENCAPSULATED,
            ]
        );
        for file in files(&answer) {
            assert_eq!((&file["mode"], &file["overwrite"]), (&json!(420), &json!(true)));
        }
        assert_eq!(contents(&answer, "/etc/kubernetes/kubelet-ca.crt"), "kube");
        let mc = "machineconfiguration.openshift.io";
        assert_eq!(
            contents(&answer, NODE_ANNOTATIONS),
            format!(
                r#"{{"{mc}/currentConfig":"rendered-worker-1","{mc}/desiredConfig":"rendered-worker-1","{mc}/firstPivotConfig":"rendered-worker-1","{mc}/state":"Done"}}"#
            )
        );
        assert_eq!(contents(&answer, KUBECONFIG), "clusters: []\n");
        let inner: Value = serde_json::from_str(&contents(&answer, ENCAPSULATED)).unwrap();
        let version = json!({"ignition": {"version": format!("{major}.{minor}.0")}});
        assert_eq!(inner["spec"]["config"], version);
        let dump: Value = serde_json::from_str(&contents(&answer, SERVED)).unwrap();
        assert_eq!(dump["spec"]["config"], json!({"ignition": {"version": "3.5.0"}}));
    }
}

#[test]
fn in_bootstrap_the_encapsulated_config_is_always_of_the_newest_version() {
    let config = empty_config();
    let inputs = ServeInputs { mode: ServeMode::Bootstrap, ..inputs(&config) };
    for (major, minor) in VERSIONS {
        let answer = answer(&inputs, &asked(major, minor));
        let inner: Value = serde_json::from_str(&contents(&answer, ENCAPSULATED)).unwrap();
        assert_eq!(inner["spec"]["config"]["ignition"]["version"], "3.5.0");
    }
}

#[test]
fn a_config_cannot_be_served_as_3_0() {
    let config = empty_config();
    let refusal = assemble(&inputs(&config), &asked(3, 0)).unwrap_err();
    assert!(matches!(refusal, ServeError::Convert(_)), "{refusal}");
    assert_eq!(refusal.status(), 500);
}

#[test]
fn certificates_of_the_config_are_replaced_in_place() {
    let file = |path: &str, mode: i64| json!({"path": path, "mode": mode, "contents": {"source": "data:,old", "compression": ""}});
    let config = machine_config(json!({"config": {
        "ignition": {"version": "3.5.0"},
        "storage": {"files": [file("/etc/kubernetes/kubelet-ca.crt", 384), file("/etc/b", 420)]},
    }}));
    let authorities = controller_config(json!({"kubeAPIServerServingCAData": "bmV3"}));
    let inputs = ServeInputs { controller_config: Some(&authorities), ..inputs(&config) };
    let answer = answer(&inputs, &asked(3, 5));
    let first = files(&answer)[0];
    assert_eq!(first["path"], "/etc/kubernetes/kubelet-ca.crt");
    assert_eq!(first["mode"], 384);
    assert_eq!(first["contents"]["source"], "data:,new");
    assert_eq!(paths(&answer)[1..3], ["/etc/b", NODE_ANNOTATIONS]);
    assert!(!paths(&answer).contains(&CLOUD_CA));
}

#[test]
fn kernel_arguments_are_written_where_the_machine_can_read_them() {
    let with = |arguments: Value| {
        machine_config(json!({
            "kernelArguments": ["first"],
            "config": {"ignition": {"version": "3.5.0"}, "kernelArguments": arguments},
        }))
    };
    let config = with(json!({"shouldExist": ["a b", "c"]}));
    for (major, minor) in VERSIONS {
        let answers: Vec<Value> =
            (0..3).map(|_| answer(&inputs(&config), &asked(major, minor))).collect();
        assert_eq!(answers[0], answers[2]);
        let inner: Value = serde_json::from_str(&contents(&answers[0], ENCAPSULATED)).unwrap();
        let is_new = (major, minor) >= (3, 3);
        let expected = if is_new { json!(["first"]) } else { json!(["first", "a b", "c"]) };
        assert_eq!(inner["spec"]["kernelArguments"], expected, "{major}.{minor}");
        assert_eq!(answers[0].get("kernelArguments").is_some(), is_new, "{major}.{minor}");
    }
    let config = with(json!({"shouldNotExist": ["x"]}));
    for (major, minor) in VERSIONS {
        let made = assemble(&inputs(&config), &asked(major, minor));
        match made {
            Ok(_) => assert!((major, minor) >= (3, 3)),
            Err(refusal) => {
                assert!((major, minor) < (3, 3), "{refusal}");
                assert!(matches!(refusal, ServeError::KernelArgumentsUnsupported(_)), "{refusal}");
            }
        }
    }
}

#[test]
fn images_are_set_for_the_first_boot() {
    let image = "quay.io/os@sha256:1";
    let mut config = empty_config();
    let named = |answer: &Value| -> Value {
        serde_json::from_str(&contents(answer, NODE_ANNOTATIONS)).unwrap()
    };
    let built = answer(&ServeInputs { image: Some(image), ..inputs(&config) }, &asked(3, 5));
    assert_eq!(named(&built)["machineconfiguration.openshift.io/currentImage"], image);
    assert_eq!(named(&built)["machineconfiguration.openshift.io/desiredImage"], image);
    let inner: Value = serde_json::from_str(&contents(&built, ENCAPSULATED)).unwrap();
    assert_eq!(inner["spec"]["osImageURL"], image);
    let annotations = config.metadata.annotations.get_or_insert_default();
    let name = "machineconfiguration.openshift.io/pre-built-image";
    annotations.insert(name.to_owned(), "quay.io/other@sha256:2".to_owned());
    let built = answer(&ServeInputs { image: Some(image), ..inputs(&config) }, &asked(3, 5));
    let current = &named(&built)["machineconfiguration.openshift.io/currentImage"];
    assert_eq!(current, "quay.io/other@sha256:2");
}

#[test]
fn an_invalid_config_is_not_served() {
    for spec in [json!({}), json!({"config": {"ignition": {"version": "9.0.0"}}})] {
        let refusal = assemble(&inputs(&machine_config(spec)), &asked(3, 5)).unwrap_err();
        assert_eq!(refusal.status(), 500, "{refusal}");
    }
}

#[test]
fn an_old_config_is_served_to_new_machines() {
    let config = machine_config(json!({"config": {
        "ignition": {"version": "2.2.0"},
        "storage": {"files": [{"filesystem": "root", "path": "/etc/a", "contents": {"source": "data:,a"}}]},
    }}));
    let answer = answer(&inputs(&config), &asked(3, 5));
    assert_eq!(contents(&answer, "/etc/a"), "a");
}

/// The example at the end of MCO's design document: `GET /config/master?etcd_index=1`. It is
/// compared by meaning: the document omits the version, keeps empty sections, and has the
/// kubeconfig at another path.
#[test]
fn the_example_of_mcos_design_document() {
    let example = include_str!("../../../tests/cases/serve/infra-answer.json");
    let example: Value = serde_json::from_str(example).unwrap();
    let config = include_str!("../../../tests/cases/serve/infra-machine-config.json");
    let config: MachineConfig = serde_json::from_str(config).unwrap();
    let source = |file: &Value| file["contents"]["source"].as_str().unwrap().to_owned();
    let kubeconfig = data_url::decode(&source(&example["storage"]["files"][2])).unwrap();
    let inputs = ServeInputs { kubeconfig: &kubeconfig, ..inputs(&config) };
    let asked = ConfigRequest { etcd_index: Some(1), ..asked(2, 2) };
    let answer = answer(&inputs, &asked);
    assert_eq!(answer["systemd"], example["systemd"]);
    let annotations: Value = serde_json::from_str(&contents(&answer, NODE_ANNOTATIONS)).unwrap();
    let expected = data_url::decode(&source(&example["storage"]["files"][1])).unwrap();
    let expected: Value = serde_json::from_slice(&expected).unwrap();
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&annotations[name], value, "{name}");
    }
    let served = files(&answer).into_iter().find(|file| file["path"] == KUBECONFIG).unwrap();
    assert_eq!(source(served), source(&example["storage"]["files"][2]));
    for file in files(&answer) {
        assert_eq!((&file["filesystem"], &file["mode"]), (&json!("root"), &json!(420)));
    }
    // The templates remain for requests without an index.
    let unasked = ConfigRequest { etcd_index: None, ..asked };
    let text = String::from_utf8(assemble(&inputs, &unasked).unwrap()).unwrap();
    assert!(text.contains("etcd-{{.etcd_index}}."));
}

proptest::proptest! {
    /// Every untrusted request gets a response.
    #[test]
    fn every_request_gets_a_response(text in ".{0,60}", version in "[0-9.x-]{0,8}", q in "[0-9.a-]{0,5}") {
        let accept = format!("a/vnd.coreos.ignition+json;version={version};q={q}, {text}");
        match served_version(Some(&accept), Some(&text)) {
            Ok(version) => assert!(VERSIONS.contains(&(version.major, version.minor)) || version.minor == 0),
            Err(refusal) => assert_eq!(refusal.status(), 400),
        }
        for path in [text.clone(), format!("/config/{text}"), format!("/config/%{text}")] {
            if let ServerRoute::Redirect(place) = route("GET", &path, None) {
                // A redirect leads to a route.
                assert!(!matches!(route("GET", &place, None), ServerRoute::Redirect(_)), "{path:?}");
            }
        }
        for query in [text.clone(), format!("etcd_index={text}"), format!("token={text}")] {
            let _ = etcd_index::requested_index("master", Some(&query));
            let _ = provisioning_token::token_from_request(Some(&text), Some(&query));
        }
    }
}
