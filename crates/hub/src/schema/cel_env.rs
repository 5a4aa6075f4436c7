//! The functions that CEL rules may call: CEL's own, its string and list extensions, and those of Kubernetes.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use cel::common::types::{CelBool, CelInt, CelList, CelString};
use cel::common::value::{CowVal, Val};
use cel::{DeclarationError, Env, ExecutionError, Value as Cel};
use parking_lot::Mutex;
use regex::Regex;

use super::{cel_library, format};

/// The CEL environment of all rules.
pub(super) static CEL_ENV: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(environment()));

/// Compiled patterns: rules use the same few again and again.
static PATTERNS: LazyLock<Mutex<HashMap<String, Regex>>> = LazyLock::new(Mutex::default);
/// Maximum number of cached patterns.
const MAX_PATTERNS: usize = 256;

/// The name under which [`matches`] replaces CEL's own, which compiles its pattern on every call.
pub(super) const MATCHES_FUNCTION: &str = "machinist_matches";

fn environment() -> Env {
    let mut env = Env::stdlib();
    if let Err(error) = add_kubernetes_functions(&mut env) {
        tracing::error!(%error, "cannot register all CEL functions");
    }
    env
}

fn add_kubernetes_functions(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_extension(cel::extensions::strings)?;
    env.add_extension(cel::extensions::lists)?;
    cel::add_member_overload!(env, fn matches: (CelString, CelString) -> Result<CelBool>,
        name = MATCHES_FUNCTION)?;
    cel::add_overload!(env, fn matches: (CelString, CelString) -> Result<CelBool>,
        name = MATCHES_FUNCTION, id = "machinist_matches_global")?;
    cel::add_member_overload!(env, fn find: (CelString, CelString) -> Result<CelString>)?;
    cel::add_member_overload!(env, fn find_all: (CelString, CelString) -> Result<CelList>,
        name = "findAll")?;
    cel::add_member_overload!(env, fn find_limited: (CelString, CelString, CelInt) -> Result<CelList>,
        name = "findAll")?;
    cel::add_overload!(env, fn is_url: (CelString) -> CelBool, name = "isURL")?;
    cel_library::register(env)
}

/// Calls a function with one string, such as `timestamp`.
pub(super) fn call(function: &str, text: &str) -> Option<Cel> {
    let arguments = vec![CowVal::owned(CelString::from(text.to_owned()))];
    let overload = CEL_ENV.find_overload(function, &arguments)?;
    let value = overload(arguments).ok()?;
    Cel::try_from(value.as_ref()).ok()
}

fn pattern(text: &str) -> Result<Regex, ExecutionError> {
    if let Some(found) = PATTERNS.lock().get(text) {
        return Ok(found.clone());
    }
    let compiled =
        format::regex(text).map_err(|error| ExecutionError::function_error("matches", error))?;
    let mut kept = PATTERNS.lock();
    if kept.len() < MAX_PATTERNS {
        kept.insert(text.to_owned(), compiled.clone());
    }
    Ok(compiled)
}

fn matches(this: &CelString<'_>, text: &CelString<'_>) -> Result<CelBool, ExecutionError> {
    Ok(CelBool::from(pattern(text.inner())?.is_match(this.inner())))
}

fn find(this: &CelString<'_>, text: &CelString<'_>) -> Result<CelString<'static>, ExecutionError> {
    let pattern = pattern(text.inner())?;
    let found = pattern.find(this.inner()).map(|found| found.as_str().to_owned());
    Ok(CelString::from(found.unwrap_or_default()))
}

fn find_all(
    this: &CelString<'_>,
    text: &CelString<'_>,
) -> Result<CelList<'static>, ExecutionError> {
    find_at_most(this, text, usize::MAX)
}

fn find_limited(
    this: &CelString<'_>,
    text: &CelString<'_>,
    limit: &CelInt,
) -> Result<CelList<'static>, ExecutionError> {
    find_at_most(this, text, usize::try_from(*limit.inner()).unwrap_or(usize::MAX))
}

fn find_at_most(
    this: &CelString<'_>,
    text: &CelString<'_>,
    limit: usize,
) -> Result<CelList<'static>, ExecutionError> {
    let pattern = pattern(text.inner())?;
    let found = pattern.find_iter(this.inner()).take(limit);
    let texts: Vec<Box<dyn Val>> = found
        .map(|found| Box::new(CelString::from(found.as_str().to_owned())) as Box<dyn Val>)
        .collect();
    Ok(CelList::from(texts))
}

fn is_url(text: &CelString<'_>) -> CelBool {
    CelBool::from(format::is_url(text.inner()))
}
