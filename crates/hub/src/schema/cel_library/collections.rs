//! Lists and sets: `self.ports.isSorted()`, `sets.contains(self.a, self.b)`.
#![expect(clippy::needless_pass_by_value, reason = "the signature of a function of CEL")]

use std::cmp::Ordering;

use cel::common::types::{CelBool, CelInt, DYN_TYPE, LIST_TYPE};
use cel::common::value::{CowVal, Val};
use cel::{DeclarationError, Env, ExecutionError};

type Arguments<'b, 'v> = Vec<CowVal<'b, 'v>>;
type Evaluated<'b, 'v> = Result<CowVal<'b, 'v>, ExecutionError>;

pub(super) fn register(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_member_overload("isSorted", "list_is_sorted", LIST_TYPE, vec![], is_sorted)?;
    env.add_member_overload("sum", "list_sum", LIST_TYPE, vec![], sum)?;
    env.add_member_overload("min", "list_min", LIST_TYPE, vec![], min)?;
    env.add_member_overload("max", "list_max", LIST_TYPE, vec![], max)?;
    env.add_member_overload("indexOf", "list_index_of", LIST_TYPE, vec![DYN_TYPE], index_of)?;
    env.add_member_overload(
        "lastIndexOf",
        "list_last_index_of",
        LIST_TYPE,
        vec![DYN_TYPE],
        last_index_of,
    )?;
    let lists = || vec![LIST_TYPE, LIST_TYPE];
    env.add_overload("sets.contains", "sets_contains", lists(), sets_contain)?;
    env.add_overload("sets.equivalent", "sets_equivalent", lists(), sets_equal)?;
    env.add_overload("sets.intersects", "sets_intersects", lists(), sets_intersect)
}

fn items<'a, 'v>(list: &'a (dyn Val + 'v)) -> Result<Vec<&'a (dyn Val + 'v)>, ExecutionError> {
    let list = list.as_iterable().ok_or_else(|| ExecutionError::UnexpectedType {
        got: list.get_type().name().to_owned(),
        want: "list".to_owned(),
    })?;
    let (mut all, mut next) = (Vec::new(), list.iter());
    while let Some(item) = next.next() {
        all.push(item);
    }
    Ok(all)
}

fn argument<'a, 'b, 'v>(
    arguments: &'a Arguments<'b, 'v>,
    index: usize,
) -> Result<&'a (dyn Val + 'v), ExecutionError> {
    arguments
        .get(index)
        .map(AsRef::as_ref)
        .ok_or_else(|| ExecutionError::invalid_argument_count(index + 1, arguments.len()))
}

fn compare(left: &dyn Val, right: &dyn Val) -> Result<Ordering, ExecutionError> {
    let why = || ExecutionError::function_error("lists", "no such overload");
    left.as_comparer().ok_or_else(why)?.compare(right)
}

fn is_sorted<'b, 'v>(arguments: Arguments<'b, 'v>) -> Evaluated<'b, 'v> {
    let items = items(argument(&arguments, 0)?)?;
    for pair in items.windows(2) {
        if compare(pair[0], pair[1])? == Ordering::Greater {
            return Ok(CowVal::owned(CelBool::from(false)));
        }
    }
    Ok(CowVal::owned(CelBool::from(true)))
}

fn sum<'b, 'v>(arguments: Arguments<'b, 'v>) -> Evaluated<'b, 'v> {
    let items = items(argument(&arguments, 0)?)?;
    let Some((first, rest)) = items.split_first() else {
        return Ok(CowVal::owned(CelInt::from(0)));
    };
    let mut total: Box<dyn Val + 'v> = first.clone_as_boxed();
    for item in rest {
        let why = || ExecutionError::function_error("sum", "no such overload");
        let next = total.as_adder().ok_or_else(why)?.add(*item)?.into_owned();
        total = next;
    }
    Ok(CowVal::Owned(total))
}

fn extreme<'b, 'v>(
    arguments: &Arguments<'b, 'v>,
    name: &str,
    wanted: Ordering,
) -> Evaluated<'b, 'v> {
    let items = items(argument(arguments, 0)?)?;
    let Some((first, rest)) = items.split_first() else {
        return Err(ExecutionError::function_error(name, format!("{name} called on empty list")));
    };
    let mut best = *first;
    for item in rest {
        if compare(*item, best)? == wanted {
            best = *item;
        }
    }
    Ok(CowVal::Owned(best.clone_as_boxed()))
}

fn min<'b, 'v>(arguments: Arguments<'b, 'v>) -> Evaluated<'b, 'v> {
    extreme(&arguments, "min", Ordering::Less)
}

fn max<'b, 'v>(arguments: Arguments<'b, 'v>) -> Evaluated<'b, 'v> {
    extreme(&arguments, "max", Ordering::Greater)
}

fn found<'b, 'v>(index: Option<usize>) -> CowVal<'b, 'v> {
    CowVal::owned(CelInt::from(index.and_then(|at| i64::try_from(at).ok()).unwrap_or(-1)))
}

fn index_of<'b, 'v>(arguments: Arguments<'b, 'v>) -> Evaluated<'b, 'v> {
    let wanted = argument(&arguments, 1)?;
    let items = items(argument(&arguments, 0)?)?;
    Ok(found(items.iter().position(|item| item.equals(wanted))))
}

fn last_index_of<'b, 'v>(arguments: Arguments<'b, 'v>) -> Evaluated<'b, 'v> {
    let wanted = argument(&arguments, 1)?;
    let items = items(argument(&arguments, 0)?)?;
    Ok(found(items.iter().rposition(|item| item.equals(wanted))))
}

fn holds(all: &[&dyn Val], some: &[&dyn Val]) -> bool {
    some.iter().all(|item| all.iter().any(|other| item.equals(*other)))
}

fn sets_contain<'b, 'v>(arguments: Arguments<'b, 'v>) -> Evaluated<'b, 'v> {
    let (left, right) = (items(argument(&arguments, 0)?)?, items(argument(&arguments, 1)?)?);
    Ok(CowVal::owned(CelBool::from(holds(&left, &right))))
}

fn sets_equal<'b, 'v>(arguments: Arguments<'b, 'v>) -> Evaluated<'b, 'v> {
    let (left, right) = (items(argument(&arguments, 0)?)?, items(argument(&arguments, 1)?)?);
    Ok(CowVal::owned(CelBool::from(holds(&left, &right) && holds(&right, &left))))
}

fn sets_intersect<'b, 'v>(arguments: Arguments<'b, 'v>) -> Evaluated<'b, 'v> {
    let (left, right) = (items(argument(&arguments, 0)?)?, items(argument(&arguments, 1)?)?);
    let shared = left.iter().any(|item| right.iter().any(|other| item.equals(*other)));
    Ok(CowVal::owned(CelBool::from(shared)))
}
