//! How a provider is asked about a request, and where a conflict leads: filled in but for the effect key.

use super::{Args, check_url, filled};
use crate::encode::{self, Lists, Pairs, percent};
use crate::error::BadArguments;
use crate::lookup::{ConflictPlan, Fetch, LookupPlan, Query, Since};
use crate::method::{Item, Match, Method};
use crate::policy::{KeyLookup, Keys};
use crate::template::{Piece, Spliced, Template};

impl Method {
    pub(super) fn lookup_plan(&self, args: &Args) -> Result<Option<LookupPlan>, BadArguments> {
        let Some(look) = &self.lookup else { return Ok(None) };
        if self.lookup_needs_marker() {
            return Ok(None);
        }
        let mut url = Spliced::text(&*self.home.base);
        url.push(&self.path_of(&look.path, args)?);
        let mut query = Pairs::new(Lists::Repeat);
        for (name, template) in &look.query {
            if let Some(value) = filled(template, args, percent)? {
                query.encoded(name, &value);
            }
        }
        if !query.is_empty() {
            url.push_str("?");
            url.push(&query.out);
        }
        check_url(&url)?;
        let graphql = look.graphql.as_ref().map(|(document, variables)| query_of(document, variables, args));
        let mut plan = LookupPlan {
            url,
            graphql: graphql.transpose()?,
            items: look.items.clone(),
            more: look.more.clone(),
            undivided: look.undivided,
            absent: look.absent,
            next: look.next.clone(),
            pages: look.pages,
            since: look.window.as_ref().map(|w| Since {
                query: w.query.clone(),
                form: w.form,
                margin: w.margin,
            }),
            empty: look.empty.clone(),
            fetch: look.item.as_ref().map(|item| self.fetch_plan(item, args)).transpose()?,
            absence_is_doubt: look.absence_is_doubt,
            kept: look.kept.clone(),
            ..LookupPlan::default()
        };
        for (pointer, wanted) in &look.matches {
            let template = wanted.template();
            let Some(value) = filled(template, args, str::to_owned)? else { continue };
            let list = match (wanted, template.has_key()) {
                (Match::Equals(_), true) => &mut plan.ours,
                (Match::Equals(_), false) => &mut plan.also,
                (Match::Contains(_), true) => &mut plan.ours_within,
                (Match::Contains(_), false) => &mut plan.also_within,
            };
            list.push((pointer.clone(), value));
        }
        Ok(Some(plan))
    }

    fn fetch_plan(&self, item: &Item, args: &Args) -> Result<Fetch, BadArguments> {
        let mut before = Spliced::text(&*self.home.base);
        before.push(&self.path_of(&item.before, args)?);
        let mut after = self.path_of(&item.after, args)?;
        let mut query = Pairs::new(Lists::Repeat);
        for (name, template) in &item.query {
            if let Some(value) = filled(template, args, percent)? {
                query.encoded(name, &value);
            }
        }
        if !query.is_empty() {
            after.push_str("?");
            after.push(&query.out);
        }
        Ok(Fetch { before, after, at: item.at.clone() })
    }

    pub(super) fn conflict_plan(&self, args: &Args) -> Result<Option<ConflictPlan>, BadArguments> {
        // A GraphQL object has no path, and an answer that names no object leads to none.
        if self.policy.conflict.is_empty()
            || self.policy.conflict_resource.is_none()
            || self.graphql.is_some()
        {
            return Ok(None);
        }
        let mut before = Spliced::text(&*self.home.base);
        let mut after = String::new();
        match self.unique.as_ref().and_then(|u| u.fetch.as_ref()) {
            Some((head, tail)) => {
                before.push_str(head);
                after.push_str(tail);
            }
            None => {
                before.push(&self.path_of(&self.path, args)?);
                before.push_str("/");
            }
        }
        let prove = match (&self.unique, &self.keys) {
            (Some(u), _) => Some(pointer(&u.field)),
            (None, Some((Keys { lookup: Some(KeyLookup::List { matches, .. }), .. }, _))) => {
                Some(matches.clone())
            }
            (None, Some(_)) => None,
            (None, None) => None,
        };
        Ok(Some(ConflictPlan { before, after, prove }))
    }
}

/// A query with its variables. One that is an argument and nothing else has its value as it is; one of an argument that was
/// not given is left out.
fn query_of(document: &str, given: &[(String, Template)], args: &Args) -> Result<Query, BadArguments> {
    let mut variables = Vec::new();
    for (name, template) in given {
        let whole = match template.0.as_slice() {
            [Piece::Arg(path)] if path.len() == 1 => args.iter().find(|(n, _)| *n == path[0]),
            _ => None,
        };
        if let Some((_, raw)) = whole {
            variables.push((name.clone(), Spliced::text(raw.get())));
        } else if let Some(text) = filled(template, args, str::to_owned)? {
            variables.push((name.clone(), encode::quoted(&text)));
        }
    }
    Ok(Query { document: document.to_owned(), variables })
}

fn pointer(path: &[String]) -> String {
    path.iter().map(|p| format!("/{}", p.replace('~', "~0").replace('/', "~1"))).collect()
}
