//! What is imported beside what is there: at whose address, and what the manifest's own checks say.

use crate::Error;
use crate::import::{Chosen, Run};
use crate::manifest::{Entry, Fields, Import, Manifest};
use crate::merge::digest_of;
use crate::operation::Described;
use crate::report::{Note, Reason};
use crate::served::{self, Given, shown};
use crate::servers;
use crate::service::{self, Base};
use provider::{Format, Integration, Mode};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

impl<'a> Run<'_, 'a> {
    /// Where the integration is served; those of the chosen who are served elsewhere are skipped. `there` are the operations
    /// of methods that are in the manifest, `gone` the names of those that are described no more. Returns the addresses, and
    /// what the description itself says of them.
    pub(crate) fn serve(
        &mut self,
        manifest: &Manifest,
        there: &[Described<'a>],
        gone: &BTreeSet<String>,
        chosen: &mut Vec<Chosen<'a>>,
    ) -> Result<(Base, Value), Error> {
        self.addresses()?;
        let (root, variables) = (self.document.root, &self.options.variables);
        let of = |d: &Described<'_>| service::base(root, Some(*d), variables);
        let said = &manifest.imported["options"];
        let url = manifest.field("base_url");
        let at: Vec<Base> = there.iter().map(of).collect();
        let was = served::before(&manifest.imported, url.as_ref(), &Given::of(said), &at);
        // Where an address is that a method had and its description still lists, it has not moved, whatever is listed first.
        let of = |d: &Described<'_>| match &was {
            Some(was) => served::still(was, of(d), &servers::listed(root, Some(*d), variables)),
            None => of(d),
        };
        let at: Vec<Base> = there.iter().map(of).collect();
        let new: Vec<Base> = chosen.iter().filter(|c| !c.there).map(|c| of(&c.described)).collect();
        self.same_api(manifest, &at, was.as_ref())?;
        let staying: Vec<&str> = manifest
            .known
            .iter()
            .filter(|k| k.http.is_none() || (k.touched && gone.contains(&k.name)))
            .map(|k| k.name.as_str())
            .collect();
        let given =
            Given { production: self.options.base_url.clone(), sandbox: self.options.sandbox_url.clone() };
        let described = served::choose(was.as_ref(), &at, &new, false);
        // Where the operator says where requests go, nothing that is described moves them.
        let open = |all: &[Base]| all.iter().map(|b| served::open(b, &given)).collect::<Vec<_>>();
        let (was, at, new) = (was.as_ref().map(|was| served::open(was, &given)), open(&at), open(&new));
        let base = served::choose(was.as_ref(), &at, &new, !staying.is_empty());
        if let (Some(first), Some(was)) = (at.first(), &was) {
            let note = |note: String| Note { method: None, note };
            if at.iter().all(|b| b == first) && !served::same_places(first, &base) {
                self.notes.push(note(format!(
                    "the description is served at {} now, the manifest at {}, where it stays: {:.200} are not in the \
                     description, and would move with it; --base-url moves all{}",
                    shown(first),
                    shown(&base),
                    staying.join(", "),
                    served::lost(was, first)
                )));
            }
            let digest = manifest.imported["digests"]["base_url"].as_str();
            let own = url.as_ref().is_some_and(|url| digest != Some(digest_of(url).as_str()));
            if own && !served::same_places(was, &base) {
                self.notes.push(note(format!(
                    "the description is served at {} now, before at {}; base_url stays as you have it",
                    shown(&base),
                    shown(was)
                )));
            }
        }
        let all = std::mem::take(chosen);
        for one in all {
            let own = served::open(&of(&one.described), &given);
            if served::fits(&base, &own) {
                chosen.push(one);
                continue;
            }
            let (own, others) = (shown(&own), shown(&base));
            let detail = match (one.there, manifest.known.is_empty()) {
                (true, _) => format!("it is served at {own} now, the others at {others}"),
                (false, true) => {
                    format!(
                        "it is served at {own}, unlike the others; import it by itself with --path or --operation"
                    )
                }
                (false, false) => format!(
                    "it is served at {own}, what is there at {others}; import it by itself, with --name and --path or --operation"
                ),
            };
            self.skip(&one.name, one.described.http(), Reason::Server, detail);
        }
        let trimmed = |url: &Option<String>| url.as_ref().map(|u| u.trim_end_matches('/').to_owned());
        let server = served::urls(&served::beside(&base, described, &given), &Given::default());
        let production = trimmed(&given.production).or(base.production);
        Ok((Base { production, sandbox: trimmed(&given.sandbox).or(base.sandbox) }, server))
    }

    /// The addresses that are given can be some.
    fn addresses(&self) -> Result<(), Error> {
        for (option, url) in
            [("--base-url", &self.options.base_url), ("--sandbox-url", &self.options.sandbox_url)]
        {
            if let Some(url) = url
                && service::checked(url).as_deref() != Some(url.trim_end_matches('/'))
            {
                return Err(Error::Option(format!(
                    "{option} {url:?} must be https, or http on loopback, and end before any `?`"
                )));
            }
        }
        Ok(())
    }

    /// A manifest is not taken for the one of another description, whose methods would be lost.
    fn same_api(&self, manifest: &Manifest, at: &[Base], was: Option<&Base>) -> Result<(), Error> {
        if self.options.replace || manifest.known.is_empty() {
            return Ok(());
        }
        let imported = manifest.known.iter().filter(|k| k.http.is_some()).count();
        let moved = was.is_some_and(|was| !at.iter().any(|b| served::same_places(b, was)));
        match at.len() {
            0 => Err(Error::Other { imported, here: 0 }),
            here if here * 2 < imported && moved => Err(Error::Other { imported, here }),
            _ => Ok(()),
        }
    }

    /// Takes out what the manifest's own checks refuse.
    pub(crate) fn weed(&mut self, top: &Fields, entries: &mut Vec<Entry>, mode: Mode) -> Result<(), Error> {
        let (none, out, server) = (BTreeSet::new(), BTreeMap::new(), Value::Null);
        let written = |entries: &[Entry]| {
            let blank = Manifest::read(None).map_err(Error::Existing)?;
            let import = Import {
                head: "",
                top,
                entries,
                gone: &none,
                server: &server,
                taken_out: &out,
                left_out: &[],
            };
            Ok::<String, Error>(blank.write(&import).0)
        };
        let loads = |text: &str| {
            Integration::parse("manifest", text, Format::Toml, mode).map(|_| ()).map_err(|e| e.message)
        };
        // What fails may be an operator's: then none of these is taken out.
        if entries.is_empty() || loads(&written(entries)?).is_ok() {
            return Ok(());
        }
        for entry in std::mem::take(entries) {
            match loads(&written(std::slice::from_ref(&entry))?) {
                Ok(()) => entries.push(entry),
                Err(detail) => self.skip(&entry.name, entry.http, Reason::Refused, detail),
            }
        }
        Ok(())
    }

    /// Leaves methods as they are in which what an operator has changed doesn't go together with what is described now.
    pub(crate) fn give_way(
        &mut self,
        manifest: &Manifest,
        entries: &mut Vec<Entry>,
        loads: impl Fn(Manifest, &[Entry]) -> Result<(), Error>,
    ) {
        let touched: BTreeSet<&str> =
            manifest.known.iter().filter(|k| k.touched).map(|k| k.name.as_str()).collect();
        for entry in std::mem::take(entries) {
            if !touched.contains(entry.name.as_str()) {
                entries.push(entry);
                continue;
            }
            match loads(manifest.only(&entry.name), std::slice::from_ref(&entry)) {
                Err(Error::Manifest(why)) => {
                    let detail = format!("with what you have changed of it, it would be refused: {why}");
                    self.skip(&entry.name, entry.http, Reason::Conflict, detail);
                }
                _ => entries.push(entry),
            }
        }
    }
}

impl Given {
    /// Those of an earlier import.
    fn of(said: &Value) -> Given {
        let text = |field: &str| said[field].as_str().map(str::to_owned);
        Given { production: text("base_url"), sandbox: text("sandbox_url") }
    }
}
