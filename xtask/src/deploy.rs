//! The files under `deploy/`: nothing here starts a container, so they are held against the published schemas of what
//! reads them.

use crate::clients::venv;
use crate::steps::Step;
use crate::{build_dir, root};
use anyhow::{Result, bail};
use std::process::Command;

/// Checks them.
///
/// # Errors
/// The checkers can't be installed, or find something.
pub fn check(step: &mut Step) -> Result<()> {
    let deploy = root().join("deploy");
    let folder = build_dir().join("deploy");
    venv(&deploy.join("checks/requirements.txt"), &folder)?;
    let tool = |name: &str| Command::new(folder.join("venv/bin").join(name));
    let mut compose = tool("check-jsonschema");
    compose.args(["--builtin-schema", "vendor.compose-spec"]).arg(deploy.join("compose.yaml"));
    step.command(&mut compose)?;
    let mut kubernetes = tool("kubernetes-validate");
    step.command(kubernetes.arg("--strict").arg(deploy.join("kubernetes.yaml")))?;
    let mut style = tool("yamllint");
    style.args(["--strict", "--config-file"]).arg(deploy.join("checks/yamllint.yaml"));
    step.command(style.arg(deploy.join("compose.yaml")).arg(deploy.join("kubernetes.yaml")))?;
    // The same settings stand in two files, because a Kubernetes manifest can't refer to another.
    let text = std::fs::read_to_string(deploy.join("kubernetes.yaml"))?;
    let own = std::fs::read_to_string(deploy.join("counterfoil.toml"))?;
    let settings =
        own.lines().map(|l| l.split('#').next().unwrap_or_default().trim()).filter(|l| !l.is_empty());
    for line in settings {
        if !text.lines().any(|l| l.trim() == line) {
            bail!(
                "deploy/counterfoil.toml says {line}, and the configuration in deploy/kubernetes.yaml doesn't"
            );
        }
    }
    step.pass();
    Ok(())
}
