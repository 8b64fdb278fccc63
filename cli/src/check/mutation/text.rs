//! Renders the result of `tautline check mutation` as text: each object's patch, policies and
//! errors.

use std::fmt::{self, Write};

use serde_json::Value;
use tautline_mutating_policy::{Fault, InvocationEnd, InvocationReport, Mismatch, MutationReport};

use super::{Checked, Object};
use crate::{check::documents::plain_lines, table::plain};

pub(super) fn of(checked: &Checked) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    _ = write(&mut out, checked);
    out
}

fn write(out: &mut String, checked: &Checked) -> fmt::Result {
    let s = if checked.policies == 1 { "y" } else { "ies" };
    writeln!(out, "{} polic{s} in force", checked.policies)?;
    for fault in &checked.faults {
        writeln!(out, "  fault: {}", lines(fault))?;
    }
    for warning in &checked.warnings {
        writeln!(out, "  warning: {}", lines(warning))?;
    }
    for object in &checked.objects {
        writeln!(out)?;
        object.write(out)?;
    }
    Ok(())
}

impl Object {
    fn write(&self, out: &mut String) -> fmt::Result {
        let (answer, cost) = (self.outcome, self.cost_units);
        writeln!(out, "{}: {answer}, {cost} cost units", plain(&self.title))?;
        if let Some(refusal) = &self.refusal {
            let (code, reason) = (refusal.code, refusal.reason);
            writeln!(out, "  {code} {reason}: {}", lines(&refusal.message))?;
        }
        for note in &self.notes {
            writeln!(out, "  note: {}", lines(note))?;
        }
        operations(out, &self.patch, &self.before)?;
        for invocation in &self.invocations {
            write_invocation(out, invocation)?;
        }
        for fault in self.faults.iter().filter(|f| f.ignored) {
            write_ignored(out, fault)?;
        }
        for skipped in &self.skipped {
            let why = match skipped.why {
                Mismatch::NamespaceSelector => "its namespaceSelector does not match",
                Mismatch::ObjectSelector => "its objectSelector does not match",
                Mismatch::Excluded => "one of its excludeResourceRules matches",
                Mismatch::ResourceRules => "none of its resourceRules matches",
                Mismatch::NoParams => {
                    "no parameter matches its paramRef; name the file of the parameter by -f"
                }
            };
            let name = name(&skipped.policy, skipped.binding.as_deref(), None);
            writeln!(out, "  {name}: not evaluated, {why}")?;
        }
        Ok(())
    }
}

fn write_invocation(out: &mut String, invocation: &InvocationReport) -> fmt::Result {
    let (policy, binding) = (&invocation.policy, &invocation.binding);
    let param = invocation.param.as_deref();
    let again = if invocation.pass > 1 { " again" } else { "" };
    let end = match (invocation.end, &invocation.condition) {
        (InvocationEnd::Skipped, Some(condition)) => {
            format!("skipped, condition {} is false", plain(condition))
        }
        (end, _) => end.code().to_owned(),
    };
    let name = name(policy, Some(binding), param);
    writeln!(out, "  {name}:{again} {end}")?;
    for step in &invocation.steps {
        write_mutation(out, step)?;
    }
    Ok(())
}

fn write_mutation(out: &mut String, step: &MutationReport) -> fmt::Result {
    let (field, cost) = (plain(&step.field), step.cost_units);
    let what = match (&step.error, step.changed) {
        (Some(error), _) => lines(error),
        (None, true) => "changed".to_owned(),
        (None, false) => "unchanged".to_owned(),
    };
    writeln!(out, "    {field}: {what}, {cost} cost units")?;
    for (name, value) in &step.variables {
        match value {
            Ok(value) => writeln!(out, "      variables.{name} = {}", short(value))?,
            Err(error) => writeln!(out, "      variables.{name}: {}", lines(&error.to_string()))?,
        }
    }
    Ok(())
}

fn write_ignored(out: &mut String, fault: &Fault) -> fmt::Result {
    let name = name(&fault.policy, fault.binding.as_deref(), None);
    writeln!(out, "  {name}: error ignored: {}", lines(&fault.message))
}

/// Returns `POLICY / BINDING (PARAMETER)`.
fn name(policy: &str, binding: Option<&str>, param: Option<&str>) -> String {
    let mut name = plain(policy);
    if let Some(binding) = binding {
        name += &format!(" / {}", plain(binding));
    }
    if let Some(param) = param {
        name += &format!(" ({})", plain(param));
    }
    name
}

/// Writes a patch as a diff: removed and added values, at their paths.
fn operations(out: &mut String, patch: &Value, before: &Value) -> fmt::Result {
    for operation in patch.as_array().into_iter().flatten() {
        let path = operation["path"].as_str().unwrap_or_default();
        let (op, shown) = (operation["op"].as_str().unwrap_or_default(), plain(path));
        if matches!(op, "remove" | "replace")
            && let Some(old) = before.pointer(path)
        {
            writeln!(out, "  - {shown}: {}", short(old))?;
        }
        if matches!(op, "add" | "replace") {
            writeln!(out, "  + {shown}: {}", short(&operation["value"]))?;
        }
    }
    Ok(())
}

/// Returns a value on one line.
fn short(value: &Value) -> String {
    plain(&value.to_string())
}

/// Returns a text of one or several lines, indented.
fn lines(text: &str) -> String {
    plain_lines(text).collect::<Vec<_>>().join("\n      ")
}
