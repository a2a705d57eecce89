//! The manifests that a new one would stand beside: those of the folder, and those of the same command.

use super::read_file;
use openapi::read::MAX_BYTES;
use openapi::{Description, Methods, Shared};
use std::path::{Path, PathBuf};

/// Read once, when the first new manifest is asked for; of each only what it was imported from is kept.
#[derive(Default)]
pub(super) struct Beside {
    folder: Option<Vec<(PathBuf, Methods)>>,
    /// Of this command: the description, where its manifest comes, what it was imported from.
    command: Vec<(PathBuf, PathBuf, Methods)>,
}

impl Beside {
    /// One more of this command.
    pub(super) fn add(&mut self, file: &Path, manifest: &Path, text: &str) {
        self.command.push((file.to_owned(), manifest.to_owned(), Methods::of(text)));
    }

    /// A description whose title is new must not get a second manifest beside the one that has an operator's decisions.
    pub(super) fn unforked(
        &mut self,
        folder: &Path,
        description: &Description,
        name: &str,
    ) -> Result<(), String> {
        for (file, manifest, methods) in &self.command {
            if let Some(Shared { imported, here }) = description.shared(methods) {
                return Err(format!(
                    "{here} of the {imported} operations of {} come from {} of the same command, and would from this one; \
                     nothing is written. Import one of them by itself; with --name {name} it gets a manifest of its own all the \
                     same",
                    manifest.display(),
                    file.display()
                ));
            }
        }
        let there = self.folder.get_or_insert_with(|| manifests(folder));
        for (path, methods) in there.iter().filter(|(path, _)| !self.command.iter().any(|c| c.1 == *path)) {
            if let Some(Shared { imported, here }) = description.shared(methods) {
                let stem = path.file_stem().unwrap_or_default().display();
                return Err(format!(
                    "{} has {here} of its {imported} operations from this description, or from one like it, whose title was \
                     another; nothing is written. --name {stem} imports it again, --name {name} makes another integration beside it",
                    path.display()
                ));
            }
        }
        Ok(())
    }
}

/// What the manifests of a folder were imported from. What can't be read is none, or told when it is served.
fn manifests(folder: &Path) -> Vec<(PathBuf, Methods)> {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|e| e == "toml")).collect();
    files.sort();
    let read = |path: PathBuf| {
        let text = read_file(&path, MAX_BYTES).ok()?;
        Some((path, Methods::of(&text)))
    };
    files.into_iter().filter_map(read).collect()
}
