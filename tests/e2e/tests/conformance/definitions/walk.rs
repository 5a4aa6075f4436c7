//! What people do with kinds of their own, with kubectl.

use super::super::ConformanceCheck;
use super::{ApiServer, DEFINITIONS};
use machinist_e2e::wait_for;
use serde_json::Value;
use std::fs;

pub const CHECKS: &[ConformanceCheck] = &[(
    "kubectl with a kind of one's own: apply, explain, get, patch, scale, delete",
    walk_through,
)];

const DEFINITION: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: cars.walk.example.com}
spec:
  group: walk.example.com
  scope: Namespaced
  names: {plural: cars, kind: Car, shortNames: [wcar], categories: [vehicles]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.wheels, statusReplicasPath: .status.wheels}
    additionalPrinterColumns:
    - {name: Color, type: string, jsonPath: .spec.color}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              color: {type: string, description: The color of the car., enum: [red, blue]}
              wheels: {type: integer, default: 4}
            x-kubernetes-validations:
            - {rule: self.wheels >= 3, message: it would fall over}
          status: {type: object, properties: {wheels: {type: integer}}}
"#;

const CAR: &str = r#"
apiVersion: walk.example.com/v1
kind: Car
metadata: {name: mine}
spec: {color: red}
"#;

fn kubectl(server: &ApiServer, arguments: &[&str]) -> String {
    let output = server.kubectl(arguments).unwrap();
    assert!(output.succeeded(), "{}: kubectl {arguments:?}: {output:?}", server.name);
    output.stdout
}

fn refused(server: &ApiServer, arguments: &[&str]) -> String {
    let output = server.kubectl(arguments).unwrap();
    assert!(!output.succeeded(), "{}: kubectl {arguments:?}: {output:?}", server.name);
    output.stderr
}

fn walk_through(server: &ApiServer) {
    let file = |name: &str, text: &str| {
        let path = server.dir().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (definition, car) = (file("definition.yaml", DEFINITION), file("car.yaml", CAR));
    kubectl(server, &["apply", "-f", &definition]);
    let name = "crd/cars.walk.example.com";
    kubectl(server, &["wait", "--for=condition=Established", "--timeout=60s", name]);
    let text = kubectl(server, &["apply", "-f", &definition]);
    assert!(text.contains("unchanged"), "{text}");
    wait_for("kubectl to know the kind", || {
        Ok(server.kubectl(&["apply", "-f", &car])?.succeeded())
    })
    .unwrap();
    let text = kubectl(server, &["get", "wcar"]);
    assert!(text.contains("NAME   COLOR\nmine   red"), "{text}");
    assert!(kubectl(server, &["get", "vehicles"]).contains("mine"));
    wait_for("kubectl explain to know the field", || {
        let output = server.kubectl(&["explain", "cars.spec.color"])?;
        Ok(output.stdout.contains("The color of the car."))
    })
    .unwrap();
    kubectl(
        server,
        &["patch", "car", "mine", "--type=merge", "-p", r#"{"spec":{"color":"blue"}}"#],
    );
    let text = refused(
        server,
        &["patch", "car", "mine", "--type=merge", "-p", r#"{"spec":{"color":"pink"}}"#],
    );
    assert!(
        text.contains("Unsupported value: \"pink\": supported values: \"red\", \"blue\""),
        "{text}"
    );
    let text = refused(
        server,
        &["patch", "car", "mine", "--type=merge", "-p", r#"{"spec":{"wheels":2}}"#],
    );
    assert!(text.contains("spec: Invalid value: \"object\": it would fall over"), "{text}");
    kubectl(server, &["scale", "car/mine", "--replicas=6"]);
    let text = kubectl(
        server,
        &["get", "car", "mine", "-o", "jsonpath={.spec.wheels}{.metadata.generation}"],
    );
    assert_eq!(text, "63", "{}", server.name);
    kubectl(server, &["scale", "car/mine", "--current-replicas=6", "--replicas=5"]);
    refused(server, &["scale", "car/mine", "--current-replicas=6", "--replicas=4"]);
    let text = kubectl(server, &["apply", "--server-side", "-f", &car, "--force-conflicts"]);
    assert!(text.contains("serverside-applied"), "{text}");
    kubectl(server, &["delete", name, "--timeout=60s"]);
    assert_eq!(server.get(&format!("{DEFINITIONS}/cars.walk.example.com")).code, 404);
    wait_for("the kind to be gone", || {
        Ok(server.get("/apis/walk.example.com/v1/namespaces/default/cars").code == 404)
    })
    .unwrap();
    let list = server.get(DEFINITIONS).body;
    let names = list["items"].as_array().into_iter().flatten().map(|it| &it["metadata"]["name"]);
    assert!(names.into_iter().all(|name: &Value| name != "cars.walk.example.com"));
}
