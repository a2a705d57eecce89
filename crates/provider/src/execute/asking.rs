//! Asking a provider about an effect: what goes out, page by page.

use super::{HttpExecutor, On, Placed, recorded};
use crate::judge::Answer;
use crate::lookup::{self, Fetch, LookupPlan, MAX_FETCHED, Question, Tally};
use crate::request::{HttpIntent, Listed, Listing, answered, ask};
use ledger::{Asked, EffectKey, Intent, Looked, Millis};
use serde_json::value::RawValue;
use tokio::time::Instant;

impl HttpExecutor {
    /// What a provider lists of the objects that bear effect keys, `pages` at most. Nothing is changed by it.
    ///
    /// # Errors
    /// Why it can't be known, for people.
    pub async fn list(&self, listing: &Listing, pages: usize, timeout: Millis) -> Result<Listed, String> {
        let deadline = Instant::now() + timeout.duration();
        let mut listed = Listed::default();
        let mut url = listing.first();
        for _ in 0..pages.max(1) {
            let to = self.placed(&listing.http, None, deadline).await.map_err(|e| e.to_string())?;
            let answer = self.page(&to, &Question::at(url.clone()), deadline).await?;
            match listing.take(&answer, &mut listed)? {
                Some(next) if next != url => url = next,
                _ => break,
            }
        }
        Ok(listed)
    }

    /// One page of a look-up.
    async fn page(&self, to: &Placed<'_>, question: &Question, deadline: Instant) -> Result<Answer, String> {
        let request = ask(question, &to.http.headers)?;
        let answer = answered(self.exchange(On::Fresh, request, to, deadline).await)?;
        // The next question has another token.
        let _ = self.renews(to, answer.status);
        Ok(answer)
    }

    pub(super) async fn ask(
        &self,
        intent: &Intent,
        key: &EffectKey,
        timeout: Millis,
        asked: Option<Asked>,
    ) -> Looked {
        let deadline = Instant::now() + timeout.duration();
        let unknown = |why: String| Looked::Unknown { why };
        let http = match HttpIntent::decode(&intent.body) {
            Ok(http) => http,
            Err(why) => return unknown(why),
        };
        // Another account would truthfully answer that it knows nothing. Where that is not known, no answer permits more
        // than a replay, and the replay is withheld.
        let http = match self.in_place(http, true) {
            Ok(http) => http,
            Err(why) => return unknown(format!("not asked: {why}")),
        };
        let to = match self.placed(&http, recorded(&http, true), deadline).await {
            Ok(to) => to,
            Err(why) => return unknown(format!("not asked: {why}")),
        };
        let Some(plan) = &http.lookup else { return unknown("this provider can't be asked".into()) };
        self.pages(plan, &to, key, asked, deadline).await.unwrap_or_else(unknown)
    }

    /// Asks page by page, until there is a match or no further page.
    async fn pages(
        &self,
        plan: &LookupPlan,
        to: &Placed<'_>,
        key: &EffectKey,
        asked: Option<Asked>,
        deadline: Instant,
    ) -> Result<Looked, String> {
        let first = plan.first(key, asked)?;
        let mut tally = Tally::default();
        let mut here = first.clone();
        for _ in 0..plan.most_pages() {
            let answer = self.page(to, &here, deadline).await?;
            let mut page = plan.read(key, &first, &here, &answer, &to.http.policy)?;
            if let Some(fetch) = &plan.fetch {
                page.items = self.fetched(fetch, &page.items, to, key, deadline, &mut tally).await?;
            }
            let next = page.next.take();
            plan.take(key, &page, &answer, asked, &mut tally)?;
            match next {
                Some(next) if !LookupPlan::is_enough(&tally) => here = next?,
                _ => break,
            }
        }
        Ok(plan.verdict(&tally))
    }

    /// The objects that the items of a list name.
    async fn fetched(
        &self,
        fetch: &Fetch,
        items: &[Box<RawValue>],
        to: &Placed<'_>,
        key: &EffectKey,
        deadline: Instant,
        tally: &mut Tally,
    ) -> Result<Vec<Box<RawValue>>, String> {
        let mut objects = Vec::new();
        for item in items {
            if !tally.fetches() {
                return Err(format!(
                    "the look-up found more than {MAX_FETCHED} objects to look at; narrow its query"
                ));
            }
            let answer = self.page(to, &Question::at(fetch.url(key, item)?), deadline).await?;
            objects.push(lookup::whole(&answer, &to.http.policy)?.to_owned());
        }
        Ok(objects)
    }
}
