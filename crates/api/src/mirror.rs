//! Types that have a part of the fields of a Kubernetes type.

/// Declares such types as `Name => Whole { field: Type; }`, after attributes that all of them get.
/// Each becomes `Whole` by `From`: a field becomes the field of the same name, by the function
/// after its `=>` if there is one, and the fields that are left out get their defaults.
macro_rules! mirrors {
    (@value $value:expr) => { $value };
    (@value $value:expr, $how:expr) => { $how($value) };
    (
        @type [$(#[$attribute:meta])*] $visibility:vis $name:ident => $whole:ty {
            $($(#[$of_field:meta])* $field:ident: $type:ty $(=> $how:expr)?;)*
        }
    ) => {
        $(#[$attribute])*
        $visibility struct $name { $($(#[$of_field])* $field: $type,)* }

        impl From<$name> for $whole {
            // A type may have all fields of the whole.
            #[allow(clippy::needless_update)]
            fn from(of: $name) -> Self {
                Self {
                    $($field: $crate::mirror::mirrors!(@value of.$field $(, $how)?),)*
                    ..Self::default()
                }
            }
        }
    };
    ($attributes:tt $($visibility:vis $name:ident => $whole:ty { $($fields:tt)* })*) => {
        $($crate::mirror::mirrors! {
            @type $attributes $visibility $name => $whole { $($fields)* }
        })*
    };
}

pub(crate) use mirrors;

/// Converts a part that may be absent.
pub(crate) fn part<A, B: From<A>>(of: Option<A>) -> Option<B> {
    of.map(B::from)
}

/// Converts a part that is empty if it is absent.
pub(crate) fn part_or_default<A: Default, B: From<A>>(of: Option<A>) -> B {
    of.unwrap_or_default().into()
}
