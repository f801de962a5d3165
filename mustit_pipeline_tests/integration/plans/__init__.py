"""Every statement beside a large history, under statistics that are wrong."""
