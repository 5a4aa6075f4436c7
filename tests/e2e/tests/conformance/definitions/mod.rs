//! CustomResourceDefinitions that clients create: a real kube-apiserver and the hub get the same good and bad definitions
//! and the same objects of the kinds. Verdicts, errors and what is stored must be the same. [`walk`] does with kubectl what
//! people do with kinds of their own.

mod bad;
mod good;
mod walk;

use super::api_server::{ApiServer, TestResponse};
use machinist_e2e::wait_for;
use serde_json::{Value, json};

pub use walk::CHECKS;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const GROUP: &str = "oracle.example.com";

/// How far the errors of both must agree.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Agreement {
    /// Fields, reasons and messages.
    Text,
    /// Fields and reasons: the messages name what another parser found.
    Fields,
}

/// A definition of a kind of its own, and objects of the kind.
struct Case {
    name: &'static str,
    spec: Value,
    agreement: Agreement,
    objects: Vec<Value>,
}

/// A definition with one version and this schema. `number` keeps the names apart.
fn definition(number: usize, schema: &Value) -> Value {
    let (plural, kind) = (format!("things{number}"), format!("Thing{number}"));
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": "Cluster",
            "names": {"plural": plural, "kind": kind},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

/// A response without what differs from one API server to another.
fn comparable(response: &TestResponse, agreement: Agreement) -> Value {
    let body = &response.body;
    if body["kind"] == "Status" && body["status"] == "Failure" {
        let causes = body["details"]["causes"].as_array().into_iter().flatten();
        let mut causes: Vec<Value> = causes
            .map(|cause| match agreement {
                Agreement::Text => cause.clone(),
                Agreement::Fields => json!([cause["field"], cause["reason"]]),
            })
            .collect();
        causes.sort_by_key(Value::to_string);
        causes.dedup();
        return json!({"code": response.code, "reason": body["reason"], "causes": causes});
    }
    let mut body = body.clone();
    if let Some(metadata) = body["metadata"].as_object_mut() {
        for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
            metadata.remove(field);
        }
    }
    json!({"code": response.code, "body": body})
}

/// What a case says of itself must be what kube-apiserver says.
fn expect(name: &str, response: &TestResponse, code: u16) -> Option<String> {
    (response.code != code).then(|| format!("{name}: kube-apiserver: {}", response.body))
}

/// Compares the responses of both to the same request.
fn compare(what: &str, responses: [TestResponse; 2], agreement: Agreement) -> Option<String> {
    let [wanted, found] = responses.map(|response| comparable(&response, agreement));
    (wanted != found).then(|| format!("{what}:\nkube-apiserver: {wanted:#}\nhub: {found:#}"))
}

fn wait_until_established(server: &ApiServer, name: &str) {
    wait_for("the definition to be established", || {
        let stored = server.get(&format!("{DEFINITIONS}/{name}")).body;
        let conditions = stored["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let is =
            |type_: &str| conditions.iter().any(|it| it["type"] == type_ && it["status"] == "True");
        Ok(is("Established") && is("NamesAccepted"))
    })
    .unwrap();
}

#[test]
fn definitions_are_judged_as_kube_apiserver_does() {
    let (kubernetes, hub) = (ApiServer::kubernetes().unwrap(), ApiServer::hub().unwrap());
    let both = [&kubernetes, &hub];
    let mut failed = Vec::new();
    let bad = bad::cases();
    for (number, case) in bad.iter().enumerate() {
        let mut object = definition(number, &Value::Null);
        object["spec"]["versions"] = Value::Null;
        merge(&mut object["spec"], &case.spec, &definition(number, &Value::Null)["spec"]);
        let responses = both.map(|server| server.post(DEFINITIONS, &object));
        failed.extend(expect(case.name, &responses[0], 422));
        failed.extend(compare(case.name, responses, case.agreement));
    }
    let good = good::cases();
    let mut served = Vec::new();
    for (number, case) in good.iter().enumerate() {
        let mut object = definition(1000 + number, &Value::Null);
        merge(&mut object["spec"], &case.spec, &definition(1000 + number, &Value::Null)["spec"]);
        let responses = both.map(|server| server.post(DEFINITIONS, &object));
        let is_served = responses.iter().all(|response| response.code == 201);
        served.push(is_served);
        failed.extend(expect(case.name, &responses[0], 201));
        failed.extend(compare(case.name, responses, case.agreement));
    }
    let mut count = 0;
    for (number, case) in good.iter().enumerate().filter(|(number, _)| served[*number]) {
        let (plural, kind) =
            (format!("things{}", 1000 + number), format!("Thing{}", 1000 + number));
        for server in both {
            wait_until_established(server, &format!("{plural}.{GROUP}"));
        }
        let path = format!("/apis/{GROUP}/v1/{plural}");
        for server in both {
            wait_for("the kind to be served", || Ok(server.get(&path).code == 200)).unwrap();
        }
        for (index, fields) in case.objects.iter().enumerate() {
            let mut object = json!({
                "apiVersion": format!("{GROUP}/v1"), "kind": kind,
                "metadata": {"name": format!("object-{index}")},
            });
            merge(&mut object, fields, &Value::Null);
            let what = format!("{}, object {index}: {fields}", case.name);
            let responses = both.map(|server| server.post(&path, &object));
            failed.extend(compare(&what, responses, case.agreement));
            count += 1;
        }
    }
    for failure in failed.iter().take(20) {
        eprintln!("{failure}\n");
    }
    let total = bad.len() + good.len() + count;
    assert!(failed.is_empty(), "{} of {total} requests are judged differently", failed.len());
    eprintln!(
        "{} bad and {} good definitions with {count} objects are judged alike",
        bad.len(),
        good.len()
    );
}

/// Sets the fields of an object, and the schema of its first version where that is given alone.
fn merge(object: &mut Value, fields: &Value, base: &Value) {
    for (name, value) in fields.as_object().into_iter().flatten() {
        if name == "schema" && base.is_object() {
            object["versions"] = base["versions"].clone();
            object["versions"][0]["schema"] = json!({"openAPIV3Schema": value});
        } else if name == "version" && base.is_object() {
            object["versions"] = base["versions"].clone();
            for (field, value) in value.as_object().into_iter().flatten() {
                object["versions"][0][field] = value.clone();
            }
        } else if name == "names" && base.is_object() {
            for (field, value) in value.as_object().into_iter().flatten() {
                object["names"][field] = value.clone();
            }
        } else {
            object[name] = value.clone();
        }
    }
}
