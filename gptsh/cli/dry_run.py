"""What would be sent, told instead of sent."""

from gptsh.cli import stdio
from gptsh.cli.prepare import Job
from gptsh.render import structured
from gptsh.render.plain import FACTS, context_lines


def dry_run(job: Job) -> int:
    """Print model, way, window and tokens; for a program the request itself, its keys masked. Nothing is sent."""
    wire, model, report = job.client.wire(job.request), job.request.model, job.context.report()
    if job.form.structured:
        request = {"model": model, "wire": wire, **job.client.preview(job.request), "context": report, "error": None}
        stdio.write_lines([structured.line(request)])
    else:
        stdio.write_facts(context_lines(wire, report, job.request), FACTS)
    return 0
