//! The methods of the protocol: passed through, but for what the ledger has a part in.

use crate::{Durable, tools};
use calls::EXTENSION;
use rmcp::model::*;
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::Value;
use std::borrow::Cow;

type Asked = RequestContext<RoleServer>;
type Told = NotificationContext<RoleServer>;

impl<H: ServerHandler> Durable<H> {
    /// What is announced of keys: the carriers that the SDK lets through.
    fn announcement(&self) -> JsonObject {
        let mut carriers = vec!["_meta", "header"];
        if self.config.key_argument {
            carriers.push("argument");
        }
        match calls::announcement(&carriers, self.config.retention.0) {
            Value::Object(announcement) => announcement,
            _ => JsonObject::new(),
        }
    }

    fn announce(&self, capabilities: &mut ServerCapabilities) {
        let extensions = capabilities.extensions.get_or_insert_default();
        extensions.insert(EXTENSION.into(), self.announcement());
    }
}

#[allow(deprecated)] // Methods of the legacy era are passed on as well.
impl<H: ServerHandler> ServerHandler for Durable<H> {
    async fn ping(&self, context: Asked) -> Result<(), ErrorData> {
        self.hear(&context).await;
        self.handler.ping(context).await
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: Asked,
    ) -> Result<InitializeResult, ErrorData> {
        self.hear(&context).await;
        let mut result = self.handler.initialize(request, context).await?;
        // The legacy era knows no extensions; what is beyond its own capabilities is experimental.
        let experimental = result.capabilities.experimental.get_or_insert_default();
        experimental.insert(EXTENSION.into(), self.announcement());
        Ok(result)
    }

    fn negotiate_initialize(&self, request: &InitializeRequestParams) -> Result<InitializeResult, ErrorData> {
        self.handler.negotiate_initialize(request)
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        self.handler.supported_protocol_versions()
    }

    async fn discover(&self, context: Asked) -> Result<DiscoverResult, ErrorData> {
        self.hear(&context).await;
        let mut result = self.handler.discover(context).await?;
        self.announce(&mut result.capabilities);
        Ok(result)
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: Asked,
    ) -> Result<CompleteResult, ErrorData> {
        self.hear(&context).await;
        self.handler.complete(request, context).await
    }

    async fn set_level(&self, request: SetLevelRequestParams, context: Asked) -> Result<(), ErrorData> {
        self.hear(&context).await;
        self.handler.set_level(request, context).await
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: Asked,
    ) -> Result<GetPromptResponse, ErrorData> {
        self.hear(&context).await;
        self.handler.get_prompt(request, context).await
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        context: Asked,
    ) -> Result<ListPromptsResult, ErrorData> {
        self.hear(&context).await;
        self.handler.list_prompts(request, context).await
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: Asked,
    ) -> Result<ListResourcesResult, ErrorData> {
        self.hear(&context).await;
        self.handler.list_resources(request, context).await
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        context: Asked,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        self.hear(&context).await;
        self.handler.list_resource_templates(request, context).await
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: Asked,
    ) -> Result<ReadResourceResponse, ErrorData> {
        self.hear(&context).await;
        self.handler.read_resource(request, context).await
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        self.handler.accepted_subscription_filter(requested)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        self.handler.listen(context).await
    }

    async fn subscribe(&self, request: SubscribeRequestParams, context: Asked) -> Result<(), ErrorData> {
        self.hear(&context).await;
        self.handler.subscribe(request, context).await
    }

    async fn unsubscribe(&self, request: UnsubscribeRequestParams, context: Asked) -> Result<(), ErrorData> {
        self.hear(&context).await;
        self.handler.unsubscribe(request, context).await
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: Asked,
    ) -> Result<CallToolResponse, ErrorData> {
        self.answer_call(request, context).await
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: Asked,
    ) -> Result<ListToolsResult, ErrorData> {
        self.hear(&context).await;
        let mut result = self.handler.list_tools(request, context).await?;
        let tools = std::mem::take(&mut result.tools);
        result.tools = tools.into_iter().map(|tool| tools::listed(&self.config, tool)).collect();
        Ok(result)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.handler.get_tool(name).map(|tool| tools::listed(&self.config, tool))
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: Asked,
    ) -> Result<CustomResult, ErrorData> {
        self.hear(&context).await;
        self.handler.on_custom_request(request, context).await
    }

    async fn on_cancelled(&self, notification: CancelledNotificationParam, context: Told) {
        self.handler.on_cancelled(notification, context).await;
    }

    async fn on_progress(&self, notification: ProgressNotificationParam, context: Told) {
        self.handler.on_progress(notification, context).await;
    }

    async fn on_initialized(&self, context: Told) {
        self.handler.on_initialized(context).await;
    }

    async fn on_roots_list_changed(&self, context: Told) {
        self.handler.on_roots_list_changed(context).await;
    }

    async fn on_custom_notification(&self, notification: CustomNotification, context: Told) {
        self.handler.on_custom_notification(notification, context).await;
    }

    fn get_info(&self) -> ServerConfig {
        let mut info = self.handler.get_info();
        self.announce(&mut info.capabilities);
        info
    }

    async fn get_task(&self, request: GetTaskParams, context: Asked) -> Result<GetTaskResult, ErrorData> {
        self.hear(&context).await;
        self.handler.get_task(request, context).await
    }

    async fn update_task(&self, request: UpdateTaskParams, context: Asked) -> Result<(), ErrorData> {
        self.hear(&context).await;
        self.handler.update_task(request, context).await
    }

    async fn cancel_task(&self, request: CancelTaskParams, context: Asked) -> Result<(), ErrorData> {
        self.hear(&context).await;
        self.handler.cancel_task(request, context).await
    }

    async fn list_skills(
        &self,
        request: Option<PaginatedRequestParams>,
        context: Asked,
    ) -> Result<ListSkillsResult, ErrorData> {
        self.hear(&context).await;
        self.handler.list_skills(request, context).await
    }

    async fn get_skill(
        &self,
        request: GetSkillRequestParams,
        context: Asked,
    ) -> Result<GetSkillResult, ErrorData> {
        self.hear(&context).await;
        self.handler.get_skill(request, context).await
    }

    async fn read_resource_directory(
        &self,
        request: ReadResourceDirectoryRequestParams,
        context: Asked,
    ) -> Result<ReadResourceDirectoryResult, ErrorData> {
        self.hear(&context).await;
        self.handler.read_resource_directory(request, context).await
    }
}
