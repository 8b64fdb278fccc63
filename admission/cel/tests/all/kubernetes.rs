//! Every function of Kubernetes 1.36's environment against Kubernetes' own code.

use tautline_cel::{Environment, Type};

use crate::kubernetes_cases::check;

fn environment(params: bool) -> Environment {
    let names = ["object", "oldObject", "params"];
    let declared = names.iter().take(if params { 3 } else { 2 });
    declared
        .fold(Environment::new(), |e, name| e.declare(*name, Type::Dyn))
        .declare("authorizer", Type::AUTHORIZER)
        .declare("authorizer.requestResource", Type::RESOURCE_CHECK)
}

macro_rules! tests {
    ($($name:ident),*) => {$(
        #[test]
        fn $name() {
            check(concat!("tests/cases/", stringify!($name), ".json"), environment);
        }
    )*};
}

tests!(
    authorizer,
    configuration,
    convert,
    extensions,
    format,
    formats,
    lists,
    macros,
    net,
    objects,
    operators,
    optional,
    patches,
    quantity,
    regex,
    semver,
    strings,
    time,
    url
);
