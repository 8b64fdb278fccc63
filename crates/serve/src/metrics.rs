//! Sets of metrics, each declared by [`metrics!`](crate::metrics!).

use std::hash::Hash;

use prometheus_client::{
    metrics::{
        counter::Counter,
        family::{Family, MetricConstructor},
        gauge::Gauge,
        histogram::Histogram,
    },
    registry::{Metric, Registry},
};

/// A type of metrics in [`metrics!`](crate::metrics!).
#[doc(hidden)]
pub trait Example {
    /// Adds a series with empty labels, if the metric has labels.
    fn add_example(&self) {}
}

impl Example for Counter {}

impl<N, A> Example for Gauge<N, A> {}

impl Example for Histogram {}

impl<S: Clone + Default + Eq + Hash, M, C: MetricConstructor<M>> Example for Family<S, M, C> {
    fn add_example(&self) {
        _ = self.get_or_create(&S::default());
    }
}

/// Registers a metric with a series, so that the text of the registry shows its labels.
#[doc(hidden)]
pub fn register_example(
    registry: &mut Registry,
    name: String,
    help: &str,
    metric: impl Example + Metric,
) {
    metric.add_example();
    registry.register(name, help, metric);
}

/// Declares a struct whose fields are metrics, and the structs of their labels. A field has a type,
/// an initial value unless it is the default, and the name and help with which it is registered. A
/// field without a name is not a metric. Clones share all values.
///
/// ```
/// use prometheus_client::{
///     encoding::text::encode,
///     metrics::{counter::Counter, family::Family},
///     registry::Registry,
/// };
///
/// tautline_serve::metrics! {
///     /// The metrics of a queue.
///     pub struct QueueMetrics {
///         added: Family<Tenant, Counter> => "added", "Entries added, by tenant";
///         pub dropped: Counter => "dropped", "Entries dropped because the queue was full";
///         limit: usize = 16;
///     }
///     labels Tenant { tenant: String }
/// }
///
/// let mut registry = Registry::default();
/// QueueMetrics::registered("", &mut registry).dropped.inc();
/// QueueMetrics::example("other_", &mut registry);
/// let mut text = String::new();
/// encode(&mut text, &registry).unwrap();
/// assert!(text.contains("# HELP dropped Entries dropped because the queue was full.\n"));
/// assert!(text.contains("\ndropped_total 1\n"));
/// assert!(!text.contains("\nadded_total{"));
/// assert!(text.contains("\nother_added_total{tenant=\"\"} 0\n"));
/// ```
#[macro_export]
macro_rules! metrics {
    (
        $(#[$attribute:meta])*
        $visibility:vis struct $set:ident {
            $(
                $(#[$field_attribute:meta])*
                $field_visibility:vis $field:ident: $type:ty $(= $value:expr)?
                    $(=> $name:literal, $help:literal)?;
            )*
        }
        $(labels $labels:ident { $($label:ident: $label_type:ty),+ })*
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Debug)]
        $visibility struct $set {
            $($(#[$field_attribute])* $field_visibility $field: $type,)*
        }

        impl Default for $set {
            fn default() -> Self {
                Self { $($field: $crate::metrics!(@value $($value)?),)* }
            }
        }

        impl $set {
            /// Registers the metrics with names that begin with `prefix`.
            $visibility fn register(
                &self,
                prefix: &str,
                registry: &mut ::prometheus_client::registry::Registry,
            ) {
                $($(registry.register([prefix, $name].concat(), $help, self.$field.clone());)?)*
            }

            /// Returns new metrics, registered with names that begin with `prefix`.
            $visibility fn registered(
                prefix: &str,
                registry: &mut ::prometheus_client::registry::Registry,
            ) -> Self {
                let metrics = Self::default();
                metrics.register(prefix, registry);
                metrics
            }

            /// Registers new metrics that show their labels, for the reference of metrics.
            #[doc(hidden)]
            $visibility fn example(
                prefix: &str,
                registry: &mut ::prometheus_client::registry::Registry,
            ) {
                let metrics = Self::default();
                $($($crate::metrics::register_example(
                    registry,
                    [prefix, $name].concat(),
                    $help,
                    metrics.$field,
                );)?)*
            }
        }

        $(
            #[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
            #[derive(::prometheus_client::encoding::EncodeLabelSet)]
            struct $labels { $($label: $label_type,)+ }
        )*
    };
    (@value) => { ::std::default::Default::default() };
    (@value $value:expr) => { $value };
}
