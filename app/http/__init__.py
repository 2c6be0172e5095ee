"""The parts of HTTP that every interface of Portolan shares: problems, conditions, preferences."""
