//! Implements `tautline check`, which shows without a cluster what admission would do to manifests.

mod documents;
mod model;
mod mutation;
mod policy;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

#[derive(Subcommand)]
#[command(
    after_help = "Files are YAML or JSON with any number of documents; - is the standard input.\n\
                  Of a folder the manifests below it are read, as by plan -f.\n\n\
                  Examples:\n  tautline check policy -f examples/gpu-admission/1-policy.yaml \
                  --pod examples/gpu-admission/2-pods.yaml\n  \
                  tautline check mutation -f examples/mutation-policies/1-no-gpu.yaml \
                  --object examples/mutation-policies/pods.yaml\n  \
                  tautline check model -f examples/registry/1-models.yaml"
)]
pub(crate) enum Command {
    /// Which pods a policy of GPU shares changes, how, and why
    #[command(
        after_help = "Exit code 1: a pod would be refused, or a rule is bad.\n\n\
                      Examples:\n  tautline check policy -f policy.json\n  \
                      tautline check policy -f examples/gpu-admission/1-policy.yaml \
                      --pod examples/gpu-admission/2-pods.yaml\n  \
                      kubectl get pods -A -o json | tautline check policy -f policy.json --pod - -o yaml"
    )]
    Policy(policy::Args),
    /// What mutation policies make of objects, step by step
    #[command(
        after_help = "Takes MutationPolicy and MutationPolicyBinding, and MutatingAdmissionPolicy and its \
                      binding as they are.\n\
                      Exit code 1: a policy is at fault, or an object would be refused.\n\n\
                      Examples:\n  tautline check mutation -f policy.yaml binding.yaml\n  \
                      tautline check mutation -f examples/mutation-policies/2-rdma.yaml \
                      --object examples/mutation-policies/pods.yaml\n  \
                      kubectl get pods -n team -o json | tautline check mutation -f policy.yaml --object - -o yaml"
    )]
    Mutation(mutation::Args),
    /// Whether models, autoscaling policies and their bindings are in order
    #[command(
        after_help = "Whether the policy of a binding exists is not looked at.\n\
                      Exit code 1: an object would be refused.\n\n\
                      Examples:\n  tautline check model -f examples/registry/1-models.yaml\n  \
                      tautline check model -f examples/registry/1-models.yaml \
                      -f examples/registry/2-refused.yaml -o json"
    )]
    Model(model::Args),
}

pub(crate) fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Policy(args) => policy::run(&args),
        Command::Mutation(args) => mutation::run(&args),
        Command::Model(args) => model::run(&args),
    }
}
