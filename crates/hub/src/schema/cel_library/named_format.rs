//! Named formats: `!format.dns1123Label().validate(self.name).hasValue()`.

use std::any::Any;

use cel::common::types::{CelList, CelOptional, CelString, Type};
use cel::common::value::{CowVal, StaticVal, Val};
use cel::{DeclarationError, Env, ExecutionError};

use crate::name_validation::{
    validate_dns_1035_label, validate_dns_label, validate_label_value, validate_qualified_name,
    validate_subdomain,
};
use crate::schema::format::{StringFormat, is_url};

static FORMAT: Type = Type::new_unspecified_type("kubernetes.NamedFormat");

/// Returns what is wrong with a text.
type Check = fn(&str) -> Vec<String>;

const FORMATS: [(&str, Check); 13] = [
    ("dns1123Label", validate_dns_label),
    ("dns1123Subdomain", validate_subdomain),
    ("dns1035Label", validate_dns_1035_label),
    ("qualifiedName", validate_qualified_name),
    ("dns1123LabelPrefix", |text| validate_dns_label(&without_dash(text))),
    ("dns1123SubdomainPrefix", |text| validate_subdomain(&without_dash(text))),
    ("dns1035LabelPrefix", |text| validate_dns_1035_label(&without_dash(text))),
    ("labelValue", validate_label_value),
    ("uri", |text| one(is_url(text), "invalid URI for request")),
    ("uuid", |text| one(fits("uuid", text), "does not match the UUID format")),
    ("byte", |text| one(fits("byte", text), "invalid base64")),
    ("date", |text| one(fits("date", text), "invalid date")),
    ("datetime", |text| one(fits("date-time", text), "invalid datetime")),
];

fn one(is_valid: bool, why: &str) -> Vec<String> {
    if is_valid { Vec::new() } else { vec![why.to_owned()] }
}

fn fits(name: &str, text: &str) -> bool {
    StringFormat::parse(name).is_some_and(|format| format.matches(text))
}

/// A prefix may end with a dash: more follows.
fn without_dash(text: &str) -> String {
    match text.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => format!("{rest}a"),
        _ => text.to_owned(),
    }
}

/// A format, by its place in the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NamedFormat(usize);

impl Val for NamedFormat {
    fn get_type(&self) -> &Type {
        <Self as Val>::cel_type()
    }

    fn cel_type() -> &'static Type {
        &FORMAT
    }

    fn equals(&self, other: &dyn Val) -> bool {
        other.downcast_ref::<Self>().is_some_and(|other| other == self)
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
        Box::new(*self)
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl StaticVal for NamedFormat {}

macro_rules! constants {
    ($env:expr, $($index:literal),*) => {
        $({
            fn constant<'b, 'v>(
                _: Vec<CowVal<'b, 'v>>,
            ) -> Result<CowVal<'b, 'v>, ExecutionError> {
                Ok(CowVal::owned(NamedFormat($index)))
            }
            let name = format!("format.{}", FORMATS[$index].0);
            $env.add_overload(&name, &name, vec![], constant)?;
        })*
    };
}

pub(super) fn register(env: &mut Env) -> Result<(), DeclarationError> {
    constants!(env, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12);
    cel::add_overload!(env, fn named: (CelString) -> CelOptional, name = "format.named")?;
    cel::add_member_overload!(env, fn validate: (NamedFormat, CelString) -> CelOptional)
}

fn named(name: &CelString<'_>) -> CelOptional<'static> {
    match FORMATS.iter().position(|(known, _)| *known == name.inner()) {
        Some(index) => CelOptional::of(Box::new(NamedFormat(index))),
        None => CelOptional::none(),
    }
}

fn validate(format: &NamedFormat, text: &CelString<'_>) -> CelOptional<'static> {
    let faults = FORMATS.get(format.0).map(|(_, check)| check(text.inner())).unwrap_or_default();
    if faults.is_empty() {
        return CelOptional::none();
    }
    let faults = faults.into_iter().map(|text| Box::new(CelString::from(text)) as Box<dyn Val>);
    CelOptional::of(Box::new(CelList::from(faults.collect::<Vec<_>>())))
}
