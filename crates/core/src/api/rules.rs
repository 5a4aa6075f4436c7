//! The validation rules that an API server evaluates on every write, with their exact messages.
//!
//! The comments give the number of the rule in the API contract (`R1` to `R53`). Rules and messages
//! are those of the published definitions, with one exception: names are matched with patterns and
//! missing fields tested with `has`, because the published rules use functions that API servers
//! before 1.32 lack. The meaning is the same.

use serde_json::{Value, json};

/// One rule: a Common Expression Language expression, and the message if it is false.
pub(crate) fn rule(rule: &str, message: &str) -> Value {
    json!({"rule": rule, "message": message})
}

/// A DNS subdomain: labels separated by dots. The field limits its length.
const IS_SUBDOMAIN: &str =
    r"self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')";

/// R1: a DNS subdomain.
pub(crate) fn subdomain() -> Vec<Value> {
    vec![rule(
        IS_SUBDOMAIN,
        "a RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character.",
    )]
}

/// R2: a DNS subdomain, with a slightly longer message.
pub(crate) fn lowercase_subdomain() -> Vec<Value> {
    vec![rule(
        IS_SUBDOMAIN,
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character.",
    )]
}

/// R3: no count exceeds the number of machines.
pub(crate) fn machine_counts() -> Vec<Value> {
    let at_least = |greater: &str, smaller: &str| {
        rule(
            &format!("self.{greater} >= self.{smaller}"),
            &format!("{greater} must be greater than or equal to {smaller}"),
        )
    };
    vec![
        at_least("machineCount", "updatedMachineCount"),
        at_least("machineCount", "availableMachineCount"),
        at_least("machineCount", "unavailableMachineCount"),
        at_least("machineCount", "readyMachineCount"),
        at_least("availableMachineCount", "readyMachineCount"),
    ]
}

/// R4: a generation that may be reset to zero.
pub(crate) fn generation_or_zero() -> Vec<Value> {
    vec![rule(
        "self >= oldSelf || (self == 0 && oldSelf > 0)",
        "observedGeneration must not move backwards except to zero",
    )]
}

/// R5: no duplicate paths in the given list.
pub(crate) fn unique_paths(list: &str) -> Vec<Value> {
    vec![rule(
        "self.all(x, self.exists_one(y, x.path == y.path))",
        &format!("{list} must not contain duplicate paths"),
    )]
}

/// R6 and R7: a plain absolute path.
pub(crate) fn absolute_path() -> Vec<Value> {
    vec![
        rule(
            "self.matches('^/[a-zA-Z0-9/._-]+$')",
            "path must be absolute and contain only alphanumeric characters, '/', '.', '_', and '-'",
        ),
        rule("!self.contains('//')", "path must not contain consecutive forward slashes"),
    ]
}

/// R8: the object has the name of its machine.
pub(crate) fn named_after_node() -> Vec<Value> {
    vec![rule(
        "self.metadata.name == self.spec.node.name",
        "spec.node.name should match metadata.name",
    )]
}

/// R9: an image reference by digest.
fn digest() -> Value {
    rule(
        "(self.split('@').size() == 2 && self.split('@')[1].matches('^sha256:[a-f0-9]{64}$'))",
        "the OCI Image reference must end with a valid '@sha256:<digest>' suffix, where '<digest>' is 64 characters long",
    )
}

/// R9 and R10: an image by digest, on a host with a dotted name.
pub(crate) fn image_by_digest() -> Vec<Value> {
    vec![
        digest(),
        rule(
            r"(self.split('@')[0].matches('^([a-zA-Z0-9-]+\\.)+[a-zA-Z0-9-]+(:[0-9]{2,5})?/([a-zA-Z0-9-_]{0,61}/)?[a-zA-Z0-9-_.]*?$'))",
            "the OCI Image name should follow the host[:port][/namespace]/name format, resembling a valid URL without the scheme",
        ),
    ]
}

/// R9 and R11: an image by digest, possibly on the machine itself.
pub(crate) fn image_by_digest_or_local() -> Vec<Value> {
    vec![
        digest(),
        rule(
            r"(self.split('@')[0].matches('^(localhost|([a-zA-Z0-9-]+\\.)+[a-zA-Z0-9-]+)(:[0-9]{2,5})?/([a-zA-Z0-9-_]{0,61}/)?[a-zA-Z0-9-_.]*?$'))",
            "the OCI Image name should follow the host[:port][/namespace]/name format, resembling a valid URL without the scheme; host must be either 'localhost' or a dot-qualified domain name",
        ),
    ]
}

/// R12: the name of a release bundle.
pub(crate) fn release_bundle_name() -> Vec<Value> {
    vec![rule(
        r"self.matches('^ocp-release-bundle-[0-9]+\\.[0-9]+\\.[0-9]+-[A-Za-z0-9._-]+$')",
        "must be ocp-release-bundle-<version>-<arch|stream> and <= 64 chars",
    )]
}

/// R13 and R14: the path of a field in a spec.
pub(crate) fn field_path() -> Vec<Value> {
    vec![
        rule("self.startsWith('spec.')", "The fieldPath must start with `spec.`"),
        rule(
            r"self.matches('^[\\da-zA-Z\\.\\[\\]]+$')",
            "The fieldPath must consist only of alphanumeric characters, brackets [] and dots ('.').",
        ),
    ]
}

/// R15: a number that only increases.
pub(crate) fn never_decreases(field: &str) -> Vec<Value> {
    vec![rule("self >= oldSelf", &format!("{field} must not decrease"))]
}

/// R16, R17 and R18: the generations of a set of pinned images.
pub(crate) fn pinned_image_generations() -> Vec<Value> {
    vec![
        rule(
            "has(self.desiredGeneration) && has(self.currentGeneration) ? self.desiredGeneration >= self.currentGeneration : true",
            "desired generation must be greater than or equal to the current generation",
        ),
        rule(
            "has(self.lastFailedGeneration) && has(self.desiredGeneration) ? self.desiredGeneration >= self.lastFailedGeneration : true",
            "desired generation must be greater than or equal to the last failed generation",
        ),
        rule(
            "has(self.lastFailedGeneration) ? has(self.lastFailedGenerationError) : true",
            "last failed generation error must be defined on image pull and pin failure",
        ),
    ]
}

/// R19 and R22: an immutable value.
pub(crate) fn immutable(what: &str) -> Vec<Value> {
    vec![rule("self == oldSelf", &format!("{what} is immutable once set"))]
}

/// R20: where a built image is pushed.
pub(crate) fn image_push_spec() -> Vec<Value> {
    vec![rule(
        r"self.matches('^([a-zA-Z0-9-]+\\.)+[a-zA-Z0-9-]+(:[0-9]{2,5})?(/[a-zA-Z0-9-_]{1,61})*/[a-zA-Z0-9-_.]+:[a-zA-Z0-9._-]+$') || self.matches('^[^.]+\\.[^.]+\\.svc:\\d+\\/[^\\/]+\\/[^\\/]+:[^\\/]+$')",
        "the OCI Image name should follow the host[:port][/namespace]/name format, resembling a valid URL without the scheme. Or it must be a valid .svc followed by a port, repository, image name, and tag.",
    )]
}

/// R21: a build ends after it started.
pub(crate) fn build_times() -> Vec<Value> {
    vec![rule(
        "has(self.buildEnd) ? has(self.buildStart) && timestamp(self.buildStart) < timestamp(self.buildEnd) : true",
        "buildEnd must be after buildStart",
    )]
}

/// R23: the details of the builder match its type.
pub(crate) fn builder_job() -> Vec<Value> {
    vec![rule(
        "has(self.imageBuilderType) && self.imageBuilderType == 'Job' ?  has(self.job) : !has(self.job)",
        "job is required when imageBuilderType is Job, and forbidden otherwise",
    )]
}

/// R24: a DNS label.
pub(crate) fn dns_1123_label() -> Vec<Value> {
    vec![rule(
        "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
        "the value must consist of only lowercase alphanumeric characters and hyphens",
    )]
}

/// R25: a DNS label that starts with a letter.
pub(crate) fn dns_1035_label() -> Vec<Value> {
    vec![rule(
        "self.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character",
    )]
}

/// R26: the result of a finished build is immutable.
pub(crate) fn final_build_conditions() -> Vec<Value> {
    [("a", "Failed"), ("an", "Interrupted"), ("an", "Succeeded")]
        .iter()
        .map(|(article, type_)| {
            rule(
                &format!(
                    "oldSelf.exists(x, x.type=='{type_}' && x.status=='True') ? self==oldSelf : true"
                ),
                &format!("once {article} {type_} condition is set, conditions are immutable"),
            )
        })
        .collect()
}

/// R27: one image configuration per pool, named after it.
pub(crate) fn named_after_pool() -> Vec<Value> {
    let mut named = rule(
        "self.metadata.name == self.spec.machineConfigPool.name || oldSelf.hasValue() && oldSelf.spec.machineConfigPool.name.value() == self.spec.machineConfigPool.name",
        "MachineOSConfig name must match the referenced MachineConfigPool name; can only have one MachineOSConfig per MachineConfigPool",
    );
    if let Value::Object(named) = &mut named {
        named.insert("optionalOldSelf".into(), true.into());
    }
    vec![named]
}

/// R28: a generation that only increases.
pub(crate) fn generation() -> Vec<Value> {
    vec![rule("self >= oldSelf", "observedGeneration must not move backwards")]
}

/// R29 and R32: the only object, called `cluster`.
pub(crate) fn singleton(what: &str) -> Value {
    rule(
        "self.metadata.name == 'cluster'",
        &format!("{what} is a singleton, .metadata.name must be 'cluster'"),
    )
}

/// R29 and R30: the desired stream exists.
pub(crate) fn os_image_stream() -> Vec<Value> {
    vec![
        singleton("osimagestream"),
        rule(
            "self.spec == oldSelf.spec || !has(self.status) || self.spec.defaultStream in self.status.availableStreams.map(s, s.name)",
            "spec.defaultStream must reference an existing stream name from status.availableStreams",
        ),
    ]
}

/// R31: the stream in use exists.
pub(crate) fn os_image_stream_status() -> Vec<Value> {
    vec![rule(
        "self.defaultStream in self.availableStreams.map(s, s.name)",
        "defaultStream must reference a stream name from availableStreams",
    )]
}

/// R35 to R38: the requirements of the automatic handling of outdated boot images.
pub(crate) fn automatic_skew() -> Vec<Value> {
    const AUTOMATIC: &str = "has(self.status) && has(self.status.bootImageSkewEnforcementStatus) && self.status.bootImageSkewEnforcementStatus.mode == 'Automatic'";
    const NO_WISH: &str =
        "!has(self.spec.managedBootImages) || !has(self.spec.managedBootImages.machineManagers)";
    const NO_STATUS: &str = "!has(self.status.managedBootImagesStatus) || !has(self.status.managedBootImagesStatus.machineManagers)";
    const MACHINE_SETS: &str =
        "m.resource == 'machinesets' && m.apiGroup == 'machine.openshift.io'";
    let automatic = |condition: &str, message: &str| {
        rule(
            &format!("{AUTOMATIC} ? {condition} : true"),
            &format!("when skew enforcement is in Automatic mode, {message}"),
        )
    };
    vec![
        automatic(
            "has(self.spec.managedBootImages) || has(self.status.managedBootImagesStatus)",
            "a boot image configuration is required",
        ),
        automatic(
            &format!("{NO_WISH} || size(self.spec.managedBootImages.machineManagers) > 0"),
            "managedBootImages.machineManagers must not be an empty list",
        ),
        automatic(
            &format!(
                "{NO_WISH} || !self.spec.managedBootImages.machineManagers.exists(m, {MACHINE_SETS}) || self.spec.managedBootImages.machineManagers.exists(m, {MACHINE_SETS} && m.selection.mode == 'All')"
            ),
            "any MachineAPI MachineSet MachineManager must use selection mode 'All'",
        ),
        automatic(
            &format!(
                "{NO_STATUS} || self.status.managedBootImagesStatus.machineManagers.exists(m, {MACHINE_SETS} && m.selection.mode == 'All')"
            ),
            "managedBootImagesStatus must contain a MachineManager opting in all MachineAPI MachineSets",
        ),
    ]
}

/// R39, R40, R41 and R52: a field that must be set exactly if `mode` requires it.
pub(crate) fn mode_member(mode: &str, member: &str) -> Value {
    rule(
        &format!(
            "has(self.mode) && (self.mode == '{mode}') ?  has(self.{member}) : !has(self.{member})"
        ),
        &format!("{member} is required when mode is {mode}, and forbidden otherwise"),
    )
}

/// R42: a cluster version.
pub(crate) fn ocp_version() -> Vec<Value> {
    vec![rule(
        r"self.matches('^[0-9]+\\.[0-9]+\\.[0-9]+$')",
        "ocpVersion must match the OCP semver compatible format of x.y.z",
    )]
}

/// R43: an operating system version.
pub(crate) fn rhcos_version() -> Vec<Value> {
    vec![rule(
        r"self.matches('^[0-9]+\\.[0-9]+\\.([0-9]{8}|[0-9]{12})-[0-9]+$')",
        "rhcosVersion must match format [major].[minor].[datestamp(YYYYMMDD)]-[buildnumber] or must match legacy format [major].[minor].[timestamp(YYYYMMDDHHmm)]-[buildnumber]",
    )]
}

/// R44: control planes are selected as a whole.
pub(crate) fn control_plane_selection() -> Vec<Value> {
    vec![rule(
        "self.resource != 'controlplanemachinesets' || self.selection.mode == 'All' || self.selection.mode == 'None'",
        "Only All or None selection mode is permitted for ControlPlaneMachineSets",
    )]
}

/// R45: a selector exactly if the selection is partial.
pub(crate) fn partial_selection() -> Vec<Value> {
    vec![rule(
        "has(self.mode) && self.mode == 'Partial' ?  has(self.partial) : !has(self.partial)",
        "Partial is required when type is partial, and forbidden otherwise",
    )]
}

/// R46 and R47: actions that exclude all others.
pub(crate) fn exclusive_actions() -> Vec<Value> {
    ["Reboot", "None"]
        .iter()
        .map(|type_| {
            rule(
                &format!("self.exists(x, x.type=='{type_}') ? size(self) == 1 : true"),
                &format!(
                    "{type_} action can only be specified standalone, as it will override any other actions"
                ),
            )
        })
        .collect()
}

/// R48 and R49: a service exactly if the action needs one.
pub(crate) fn action_members() -> Vec<Value> {
    [("Reload", "reload"), ("Restart", "restart")]
        .iter()
        .map(|(type_, member)| {
            rule(
                &format!(
                    "has(self.type) && self.type == '{type_}' ? has(self.{member}) : !has(self.{member})"
                ),
                &format!("{member} is required when type is {type_}, and forbidden otherwise"),
            )
        })
        .collect()
}

/// R50 and R51: the name of a systemd unit.
pub(crate) fn unit_name() -> Vec<Value> {
    vec![
        rule(
            r"self.matches('\\.(service|socket|device|mount|automount|swap|target|path|timer|snapshot|slice|scope)$')",
            r#"Invalid ${SERVICETYPE} in service name. Expected format is ${NAME}${SERVICETYPE}, where ${SERVICETYPE} must be one of ".service", ".socket", ".device", ".mount", ".automount", ".swap", ".target", ".path", ".timer",".snapshot", ".slice" or ".scope"."#,
        ),
        rule(
            r"self.matches('^[a-zA-Z0-9:._\\\\-]+\\..')",
            r#"Invalid ${NAME} in service name. Expected format is ${NAME}${SERVICETYPE}, where {NAME} must be atleast 1 character long and can only consist of alphabets, digits, ":", "-", "_", ".", and "\""#,
        ),
    ]
}

/// R53: a boot image has a version.
pub(crate) fn version_required() -> Vec<Value> {
    vec![rule(
        "has(self.ocpVersion) || has(self.rhcosVersion)",
        "at least one of ocpVersion or rhcosVersion is required",
    )]
}
