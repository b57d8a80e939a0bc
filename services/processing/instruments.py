"""What the worker measures (DESIGN D10, §14)."""

from opentelemetry.metrics import Meter


class Instruments:
    """The counters and histograms of jobs and sweeps; made once, by the process that counts."""

    def __init__(self, meter: Meter) -> None:
        """Make the instruments."""
        self.jobs = meter.create_counter("assets_processing_jobs_total", description="Jobs by kind and outcome")
        self.job_seconds = meter.create_histogram(
            "assets_processing_job_seconds", unit="s", description="Time from a claim to its recorded outcome"
        )
        self.dead_letters = meter.create_counter(
            "assets_processing_dead_letters", description="Jobs that were given up, by last error code"
        )
        self.storage_errors = meter.create_counter(
            "assets_storage_errors_total", description="Jobs put back because of storage, by code"
        )
        self.cdn_failures = meter.create_counter(
            "assets_cdn_purge_failures_total",
            description="CDN purges not done, by code; assets.cdn_refused means that a person has to look",
        )
        self.leftovers = meter.create_counter(
            "assets_late_writes_total", description="Attempts whose objects nobody wanted, by whether they are gone"
        )
        self.leases_lost = meter.create_counter(
            "assets_processing_leases_lost_total", description="Outcomes dropped because another worker took the job"
        )
        self.sweeps = meter.create_counter("assets_sweeps_total", description="Sweeps run, by sweep and result")
        self.expired_uploads = meter.create_counter("assets_expired_uploads_total", description="Uploads expired")
        self.swept = meter.create_counter("assets_swept_rows_total", description="Rows that sweeps settled, by sweep")
        self.sweep_failures = meter.create_counter(
            "assets_sweep_failures_total", description="Uploads or batches a sweep could not settle; alert on repeats"
        )
